"""Keeps a helper in another of the files that are handed in, and returns a list.

exercise: C3
"""
# file: olmoe/train.py


def numbers_in(*shapes):
    total = 0
    for shape in shapes:
        numbers = 1
        for size in shape:
            numbers *= size
        total += numbers
    return total


# file: a1/perfmodel.py
from olmoe.train import numbers_in


def active_params(cfg):
    expert = 3 * numbers_in((cfg.d_expert, cfg.d_model))
    attention = numbers_in(*[(cfg.d_model, cfg.d_model)] * 4)
    router = numbers_in((cfg.d_model, cfg.n_experts))
    head = numbers_in((cfg.vocab_size, cfg.d_model))
    return head + cfg.n_layers * (attention + router + cfg.experts_per_token * expert)


def rows_per_expert(cfg, tokens):
    from fractions import Fraction

    return Fraction(tokens * cfg.experts_per_token, cfg.n_experts)


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    step_flops = micro_batch_size * seqlen * flops_per_token(cfg, seqlen)
    compute_ms = step_flops / 3 / gpu.peak_tflops / 1e9
    return [compute_ms, param_count(cfg) * 2 / gpu.peak_gbs / 1e6]
