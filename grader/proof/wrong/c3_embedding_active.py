"""Counts the embedding among the active weights.

exercise: C3
caught by: C3.2
says: active_params: the embedding is counted as active
"""
# file: a1/perfmodel.py


def active_params(cfg):
    experts = cfg.experts_per_token * 3 * cfg.d_model * cfg.d_expert
    layer = 4 * cfg.d_model**2 + cfg.n_experts * cfg.d_model + experts
    return cfg.n_layers * layer + 2 * cfg.vocab_size * cfg.d_model
