"""Takes lm_head for the embedding transposed, as in many other models.

exercise: C3
caught by: C3.1
says: no weights are tied
"""
# file: a1/perfmodel.py


def param_count(cfg):
    expert = 3 * cfg.d_model * cfg.d_expert
    layer = 4 * cfg.d_model**2 + cfg.n_experts * (cfg.d_model + expert) + 4 * cfg.d_model
    return cfg.n_layers * layer + cfg.vocab_size * cfg.d_model + cfg.d_model
