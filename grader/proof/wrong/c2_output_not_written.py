"""Forgets that C has to be written.

exercise: C2
caught by: C2.2
says: leaves out C
"""
# file: a1/perfmodel.py


def gemm_bytes(m, k, n):
    return 2 * k * (m + n)
