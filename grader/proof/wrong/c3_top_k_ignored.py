"""Multiplies every token by all experts.

exercise: C3
caught by: C3.2
says: active_params: all experts are counted
"""
# file: a1/perfmodel.py


def active_params(cfg):
    experts = cfg.n_experts * 3 * cfg.d_model * cfg.d_expert
    layer = 4 * cfg.d_model**2 + cfg.n_experts * cfg.d_model + experts
    return cfg.n_layers * layer + cfg.vocab_size * cfg.d_model
