"""Times each call with the CPU's clock, and waits for the GPU around it.

exercise: C1
caught by: C1.3
says: times between the timed calls
"""

# file: olmoe/prof.py
import time


def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) * 1e3)
    return times
