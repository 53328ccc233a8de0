"""Takes the training state for the peak.

exercise: C9
public points: 10
hidden points: 10
"""
# file: a1/perfmodel.py


def predict_peak_gib(cfg, micro_batch_size, seqlen, recompute=False):
    return state_bytes(cfg) / 2**30
