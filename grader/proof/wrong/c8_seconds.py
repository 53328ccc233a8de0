"""Gives the floor in seconds.

exercise: C8
caught by: C8.2
says: optimizer_floor_ms is in seconds
"""
# file: a1/perfmodel.py


def optimizer_floor_ms(cfg, gpu=COURSE_GPU):
    return 14 * param_count(cfg) / (gpu.peak_gbs * 1e9)
