"""One pair of events around all calls, divided by their number.

exercise: C1
caught by: C1.1
says: every time is the mean of all
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        fn()
    end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / repeats for _ in range(repeats)]
