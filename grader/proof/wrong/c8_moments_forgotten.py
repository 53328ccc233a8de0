"""Counts weights and gradients, and forgets AdamW's moments.

exercise: C8
caught by: C8.1
says: two moments are missing
"""
# file: a1/perfmodel.py


def state_bytes(cfg):
    return param_count(cfg) * (2 + 2)
