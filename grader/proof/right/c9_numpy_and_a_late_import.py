"""Returns numpy's numbers, and imports a library inside the function.

exercise: C9
"""
# file: a1/perfmodel.py


def predict_peak_gib(cfg, micro_batch_size, seqlen, recompute=False):
    import numpy as np

    phases = _peak_phases_bytes(cfg, micro_batch_size * seqlen, recompute)
    return np.array(list(phases.values())).max() / np.int64(2) ** 30


def predict_step_ms(cfg, micro_batch_size, seqlen, recompute=False):
    from statistics import fmean

    tokens = micro_batch_size * seqlen
    layer_ms = _layer_forward_ms(cfg, tokens, seqlen) * (2 if recompute else 1)
    layer_ms += _layer_backward_ms(cfg, tokens, seqlen)
    host_ms = HOST_FORWARD_MS * (2 if recompute else 1) + HOST_BACKWARD_MS
    passes_ms = cfg.n_layers * layer_ms + _head_ms(cfg, tokens)
    launches_ms = cfg.n_layers * host_ms + HOST_STEP_MS
    return fmean([max(passes_ms, launches_ms)]) + _optimizer_ms(cfg)
