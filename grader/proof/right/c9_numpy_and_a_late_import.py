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

    terms = step_terms_ms(H200, cfg, micro_batch_size, seqlen, recompute)
    per_layer = H200.host_forward_ms + H200.host_backward_ms
    if recompute:
        per_layer += H200.host_recompute_ms
    host_ms = H200.host_step_ms + cfg.n_layers * per_layer
    return fmean([max(sum(terms.values()), host_ms)])
