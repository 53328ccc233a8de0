"""Pops the events off the end of its list, so the last call comes first.

exercise: C1
caught by: C1.1
says: these times are in reverse
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
    torch.cuda.synchronize()
    times = []
    while pairs:
        start, end = pairs.pop()
        times.append(start.elapsed_time(end))
    return times
