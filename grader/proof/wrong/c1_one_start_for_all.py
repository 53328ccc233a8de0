"""Records the start once, before the first timed call.

exercise: C1
caught by: C1.1
says: reaches back to the start of the first timed call
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    for _ in range(warmup):
        fn()
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    ends = []
    for _ in range(repeats):
        fn()
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        ends.append(end)
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for end in ends]
