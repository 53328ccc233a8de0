"""Predicts the memory of a step as if nothing were ever recomputed.

exercise: C9
public points: 20
hidden points: 20
"""
# file: a1/perfmodel.py


def predict_peak_gib(cfg, micro_batch_size, seqlen, recompute=False):
    tokens = micro_batch_size * seqlen
    return max(_peak_phases_bytes(cfg, tokens, recompute=False).values()) / 2**30
