"""Divides rows among experts as whole numbers.

exercise: C3
caught by: C3.5
says: rounds down
"""
# file: a1/perfmodel.py


def rows_per_expert(cfg, tokens):
    return tokens * cfg.experts_per_token // cfg.n_experts
