"""Adds up bytes per parameter from a table of what AdamW touches, in numpy.

exercise: C8
"""
# file: a1/perfmodel.py

import numpy as np

#                    weight, gradient, first moment, second moment
READ = np.array([2, 2, 2, 2])
WRITTEN = np.array([2, 0, 2, 2])


def state_bytes(cfg):
    return READ.sum() * param_count(cfg)


def optimizer_floor_ms(cfg, gpu=COURSE_GPU):
    gigabytes = (READ + WRITTEN).sum() * param_count(cfg) / 1e9
    return np.float32(1e3) * gigabytes / gpu.peak_gbs
