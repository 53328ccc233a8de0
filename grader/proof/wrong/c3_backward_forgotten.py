"""Counts the forward pass alone.

exercise: C3
caught by: C3.3
says: flops_per_token: the backward pass is forgotten
"""
# file: a1/perfmodel.py


def flops_per_token(cfg, seqlen):
    return 2 * (active_params(cfg) + cfg.n_layers * cfg.d_model * seqlen)


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen)
    return flops / gpu.peak_tflops / 1e9, 2 * param_count(cfg) / gpu.peak_gbs / 1e6
