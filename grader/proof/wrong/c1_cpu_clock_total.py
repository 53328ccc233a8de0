"""Times all calls together with the CPU's clock and divides.

exercise: C1
caught by: C1.1
says: every time is the mean of all
"""

# file: olmoe/prof.py
from time import perf_counter


def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    torch.cuda.synchronize()
    began = perf_counter()
    for _ in range(repeats):
        fn()
    torch.cuda.synchronize()
    return [(perf_counter() - began) * 1e3 / repeats] * repeats
