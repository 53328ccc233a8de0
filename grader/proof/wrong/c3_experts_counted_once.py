"""Counts one expert in each layer, as for a dense model.

exercise: C3
caught by: C3.1
says: param_count: each layer has one expert here
"""
# file: a1/perfmodel.py


def param_count(cfg):
    mlp = 3 * cfg.d_model * cfg.d_expert
    layer = 4 * cfg.d_model**2 + cfg.n_experts * cfg.d_model + mlp + 4 * cfg.d_model
    return cfg.n_layers * layer + 2 * cfg.vocab_size * cfg.d_model + cfg.d_model
