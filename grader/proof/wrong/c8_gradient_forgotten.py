"""Counts weights and moments, and forgets the gradients.

exercise: C8
caught by: C8.1
says: 6 bytes per parameter, one number too few
"""
# file: a1/perfmodel.py


def state_bytes(cfg):
    return param_count(cfg) * (2 + 2 + 2)
