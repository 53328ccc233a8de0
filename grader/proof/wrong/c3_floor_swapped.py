"""Returns the memory floor first.

exercise: C3
caught by: C3.6
says: the compute floor comes first
"""
# file: a1/perfmodel.py


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen) / 3
    return 2 * param_count(cfg) / gpu.peak_gbs / 1e6, flops / gpu.peak_tflops / 1e9
