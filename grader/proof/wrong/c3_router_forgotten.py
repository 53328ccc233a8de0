"""Forgets the router among the active weights.

exercise: C3
caught by: C3.2
says: active_params: the routers are forgotten
"""
# file: a1/perfmodel.py


def active_params(cfg):
    experts = cfg.experts_per_token * 3 * cfg.d_model * cfg.d_expert
    return cfg.n_layers * (4 * cfg.d_model**2 + experts) + cfg.vocab_size * cfg.d_model
