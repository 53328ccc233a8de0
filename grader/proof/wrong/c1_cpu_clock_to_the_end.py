"""Reads the CPU's clock at each launch, and once more when everything is done.

exercise: C1
caught by: C1.1
says: from a call's launch to the end of everything
"""

# file: olmoe/prof.py
import time


def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    began = []
    for _ in range(repeats):
        began.append(time.perf_counter())
        fn()
    torch.cuda.synchronize()
    ended = time.perf_counter()
    return [(ended - t) * 1e3 for t in began]
