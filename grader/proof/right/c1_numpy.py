"""Numbers go through numpy and come back as its floats.

exercise: C1
"""

# file: olmoe/prof.py
import numpy as np


def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    pairs = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return list(np.array([start.elapsed_time(end) for start, end in pairs], dtype=np.float64))
