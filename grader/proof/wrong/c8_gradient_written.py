"""Lets AdamW write the gradient back.

exercise: C8
caught by: C8.2
says: writes the gradient, too
"""
# file: a1/perfmodel.py


def optimizer_floor_ms(cfg, gpu=COURSE_GPU):
    return 2 * state_bytes(cfg) / (gpu.peak_gbs * 1e9) * 1e3
