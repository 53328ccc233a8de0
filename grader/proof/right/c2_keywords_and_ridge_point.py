"""Decides by the ridge point, with type hints and a default GPU of its own.

exercise: C2
"""
# file: a1/perfmodel.py

BYTES_PER_NUMBER = 2


def gemm_flops(m: int, k: int, n: int) -> float:
    return 2.0 * m * k * n


def gemm_bytes(m: int, k: int, n: int) -> int:
    return sum(BYTES_PER_NUMBER * a * b for a, b in ((m, k), (k, n), (m, n)))


def roofline_tflops(flops, nbytes, gpu=None):
    gpu = gpu or COURSE_GPU
    ridge = (gpu.peak_tflops * 1e12) / (gpu.peak_gbs * 1e9)
    intensity = flops / nbytes
    return gpu.peak_tflops if intensity >= ridge else gpu.peak_tflops * intensity / ridge
