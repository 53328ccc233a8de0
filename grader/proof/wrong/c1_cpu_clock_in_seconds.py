"""Times the launches with the CPU's clock, in its seconds.

exercise: C1
caught by: C1.1
says: the host enqueued a call
"""

# file: olmoe/prof.py
import time


def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        fn()
        times.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    return times
