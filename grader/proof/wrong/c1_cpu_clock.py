"""Times the launches: reads the CPU's clock and waits for nothing.

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
        t0 = time.time()
        fn()
        times.append((time.time() - t0) * 1000)
    return times
