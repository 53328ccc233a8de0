"""Reads each pair of events right away, which needs a wait for each.

exercise: C1
caught by: C1.3
says: times between the timed calls
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
        end.synchronize()
        pairs.append(start.elapsed_time(end))
    return pairs
