"""Returns the bytes of the matrices where their arithmetic is asked for.

exercise: C2
caught by: C2.1
says: returns the bytes that the GEMM moves
"""
# file: a1/perfmodel.py


def gemm_flops(m, k, n):
    return 2 * (m * k + k * n + m * n)
