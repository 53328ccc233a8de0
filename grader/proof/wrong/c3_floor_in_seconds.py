"""Gives the compute floor in seconds.

exercise: C3
caught by: C3.6
says: compute floor: it is in seconds
"""
# file: a1/perfmodel.py


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen) / 3
    return flops / (gpu.peak_tflops * 1e12), 2 * param_count(cfg) / (gpu.peak_gbs * 1e9)
