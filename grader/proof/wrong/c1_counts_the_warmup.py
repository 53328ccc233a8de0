"""Times every call and returns the warm-up's times with the others.

exercise: C1
caught by: C1.1
says: include the warm-up calls
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    pairs = []
    for _ in range(warmup + repeats):
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]
