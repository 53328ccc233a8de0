"""Computes in floats and in numpy.

exercise: C2
"""
# file: a1/perfmodel.py

import numpy as np


def gemm_flops(m, k, n):
    return np.int64(2) * m * n * k


def gemm_bytes(m, k, n):
    numbers = np.array([m * k, k * n, m * n], dtype=np.float64)
    return numbers.sum() * 2.0


def roofline_tflops(flops, nbytes, gpu=COURSE_GPU):
    # as a time: the slower of the two resources decides
    seconds = max(flops / (gpu.peak_tflops * 1e12), nbytes / (gpu.peak_gbs * 1e9))
    return flops / seconds / 1e12
