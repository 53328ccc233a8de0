"""Counts numbers, not bytes.

exercise: C2
caught by: C2.2
says: counts numbers, not bytes
"""
# file: a1/perfmodel.py


def gemm_bytes(m, k, n):
    return m * k + k * n + m * n
