"""Counts what the optimizer reads, and not what it writes.

exercise: C8
caught by: C8.2
says: which is reads only
"""
# file: a1/perfmodel.py


def optimizer_floor_ms(cfg, gpu=COURSE_GPU):
    return state_bytes(cfg) / (gpu.peak_gbs * 1e9) * 1e3
