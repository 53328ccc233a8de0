"""Sends every token to a single expert.

exercise: C3
caught by: C3.5
says: sends each token to one expert; it goes
"""
# file: a1/perfmodel.py


def rows_per_expert(cfg, tokens):
    return tokens / cfg.n_experts
