"""Times the first calls and makes the warm-up's after them.

exercise: C1
caught by: C1.1
says: first calls, which are the warm-up
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    pairs = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    for _ in range(warmup):
        fn()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]
