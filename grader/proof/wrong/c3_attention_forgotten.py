"""Takes 6 FLOPs per active parameter for all there is.

exercise: C3
caught by: C3.3
says: scores and values are forgotten
"""
# file: a1/perfmodel.py


def flops_per_token(cfg, seqlen):
    return 6 * active_params(cfg)
