"""Scales one measured step with tokens and layers, and forgets what does not shrink.

exercise: C9
public points: 10
hidden points: 10
"""
# file: a1/perfmodel.py


def predict_step_ms(cfg, micro_batch_size, seqlen, recompute=False):
    ms_per_token_and_layer = 69.0 / 8192 / 4  # of one step of 4 layers, 4 x 2048
    if recompute:
        ms_per_token_and_layer *= 1.25
    return micro_batch_size * seqlen * cfg.n_layers * ms_per_token_and_layer
