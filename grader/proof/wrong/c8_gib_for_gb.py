"""Takes the bandwidth's GB for GiB.

exercise: C8
caught by: C8.2
says: optimizer_floor_ms takes a GB as 2**30 bytes
"""
# file: a1/perfmodel.py


def optimizer_floor_ms(cfg, gpu=COURSE_GPU):
    return 14 * param_count(cfg) / 2**30 / gpu.peak_gbs * 1e3
