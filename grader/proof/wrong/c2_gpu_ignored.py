"""Has the peaks of the course's GPU written into it.

exercise: C2
caught by: C2.3
says: whichever GPU it is given
"""
# file: a1/perfmodel.py


def roofline_tflops(flops, nbytes, gpu=COURSE_GPU):
    return min(COURSE_GPU.peak_tflops, flops / nbytes * COURSE_GPU.peak_gbs / 1000)
