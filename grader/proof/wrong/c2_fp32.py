"""Takes the numbers as fp32.

exercise: C2
caught by: C2.2
says: four bytes per number
"""
# file: a1/perfmodel.py


def gemm_bytes(m, k, n):
    return 4 * (m * k + k * n + m * n)
