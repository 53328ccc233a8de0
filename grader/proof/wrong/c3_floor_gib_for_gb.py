"""Takes the bandwidth's GB for GiB.

exercise: C3
caught by: C3.6
says: memory floor: it takes a GB as 2**30 bytes
"""
# file: a1/perfmodel.py


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen) / 3
    memory_s = 2 * param_count(cfg) / 1024**3 / gpu.peak_gbs
    return flops / gpu.peak_tflops / 1e9, 1e3 * memory_s
