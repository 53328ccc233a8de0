"""Lists the shapes of every tensor and adds them up with numpy.

exercise: C3
"""
# file: a1/perfmodel.py

from collections import namedtuple
from math import prod

import numpy as np

Floors = namedtuple("Floors", "compute_ms memory_ms")


def matrices_of_a_layer(cfg, experts):
    d = cfg.d_model
    return [(d, d)] * 4 + [(cfg.n_experts, d)] + [(cfg.d_expert, d)] * (3 * experts)


def param_count(cfg):
    norms = [(cfg.d_model,)] * 4
    layer = sum(prod(s) for s in matrices_of_a_layer(cfg, cfg.n_experts) + norms)
    outside = 2 * cfg.vocab_size * cfg.d_model + cfg.d_model
    return np.int64(layer) * cfg.n_layers + outside


def active_params(cfg):
    layer = sum(prod(s) for s in matrices_of_a_layer(cfg, cfg.experts_per_token))
    return float(layer * cfg.n_layers + cfg.vocab_size * cfg.d_model)


def flops_per_token(cfg, seqlen):
    weights = 6 * active_params(cfg)
    keys = seqlen / 2
    scores = 2 * cfg.n_heads * cfg.head_dim * keys
    values = 2 * keys * cfg.n_heads * cfg.head_dim
    return weights + 3 * cfg.n_layers * (scores + values)


def rows_per_expert(cfg, tokens):
    return np.divide(tokens * cfg.experts_per_token, cfg.n_experts)


def forward_floor_ms(cfg, micro_batch_size, seqlen, gpu=COURSE_GPU):
    tokens = micro_batch_size * seqlen
    compute = tokens * flops_per_token(cfg, seqlen) / (3 * gpu.peak_tflops * 1e12)
    memory = 2 * param_count(cfg) / (gpu.peak_gbs * 1e9)
    return Floors(1000 * compute, 1000 * memory)
