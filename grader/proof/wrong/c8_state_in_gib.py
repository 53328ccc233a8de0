"""Returns GiB.

exercise: C8
caught by: C8.1
says: state_bytes is in GiB
"""
# file: a1/perfmodel.py


def state_bytes(cfg):
    return 8 * param_count(cfg) / 2**30
