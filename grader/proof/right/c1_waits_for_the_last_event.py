"""Waits for the last event alone; and once after the warm-up.

exercise: C1
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    pairs[-1][1].synchronize()
    return [start.elapsed_time(end) for start, end in pairs]
