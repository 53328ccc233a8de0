"""Compares GFLOP/s of the bandwidth with TFLOP/s of the peak.

exercise: C2
caught by: C2.3
says: mixes units
"""
# file: a1/perfmodel.py


def roofline_tflops(flops, nbytes, gpu=COURSE_GPU):
    return min(gpu.peak_tflops, flops / nbytes * gpu.peak_gbs)
