"""Keeps the moments in fp32, as mixed-precision training often does.

exercise: C8
caught by: C8.1
says: counts the moments in fp32
"""
# file: a1/perfmodel.py


def state_bytes(cfg):
    return param_count(cfg) * (2 + 2 + 4 + 4)
