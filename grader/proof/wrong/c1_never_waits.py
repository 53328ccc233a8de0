"""Reads the events while the GPU is still running.

exercise: C1
caught by: C1.1
says: device not ready
"""


# file: olmoe/prof.py
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
    return [start.elapsed_time(end) for start, end in pairs]
