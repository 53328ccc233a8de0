"""Lets every token attend to its whole sequence.

exercise: C3
caught by: C3.3
says: flops_per_token: attention is counted in full
"""
# file: a1/perfmodel.py


def flops_per_token(cfg, seqlen):
    attention = 2 * cfg.n_layers * cfg.d_model * seqlen
    return 6 * (active_params(cfg) + attention)
