"""Reads only the weights that one token meets.

exercise: C3
caught by: C3.6
says: memory floor: it reads the active weights
"""
# file: a1/perfmodel.py


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen) / 3
    return flops / gpu.peak_tflops / 1e9, 2 * active_params(cfg) / gpu.peak_gbs / 1e6
