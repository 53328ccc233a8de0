"""Records one end event, after the last call.

exercise: C1
caught by: C1.1
says: reaches on to the end of the last call
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    starts = []
    for _ in range(repeats):
        start = torch.cuda.Event(enable_timing=True)
        start.record()
        starts.append(start)
        fn()
    end = torch.cuda.Event(enable_timing=True)
    end.record()
    end.synchronize()
    return [start.elapsed_time(end) for start in starts]
