"""Counts matrices only.

exercise: C3
caught by: C3.1
says: param_count: the norms are forgotten
"""
# file: a1/perfmodel.py


def param_count(cfg):
    expert = 3 * cfg.d_model * cfg.d_expert
    layer = 4 * cfg.d_model**2 + cfg.n_experts * (cfg.d_model + expert)
    return cfg.n_layers * layer + 2 * cfg.vocab_size * cfg.d_model
