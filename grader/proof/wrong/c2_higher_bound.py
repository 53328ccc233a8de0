"""Takes the higher of the two bounds.

exercise: C2
caught by: C2.3
says: returns the higher of the two bounds
"""
# file: a1/perfmodel.py


def roofline_tflops(flops, nbytes, gpu=COURSE_GPU):
    return max(gpu.peak_tflops, flops / nbytes * gpu.peak_gbs * 1e9 / 1e12)
