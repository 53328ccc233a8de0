"""Counts a multiply-add as one FLOP.

exercise: C2
caught by: C2.1
says: counts a multiply-add as one FLOP
"""
# file: a1/perfmodel.py


def gemm_flops(m, k, n):
    return m * k * n
