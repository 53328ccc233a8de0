"""Puts the FLOPs of a training step into the floor of a forward pass.

exercise: C3
caught by: C3.6
says: compute floor: it counts the backward pass too
"""
# file: a1/perfmodel.py


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen)
    return flops / gpu.peak_tflops / 1e9, 2 * param_count(cfg) / gpu.peak_gbs / 1e6
