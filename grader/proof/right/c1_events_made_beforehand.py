"""All events are made before the first call, in two lists.

exercise: C1
"""


# file: olmoe/prof.py
def cuda_time(fn, warmup=3, repeats=10):
    starts = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(repeats)]
    for _ in range(warmup):
        fn()
    for i in range(repeats):
        starts[i].record()
        fn()
        ends[i].record()
    torch.cuda.synchronize()
    return [starts[i].elapsed_time(ends[i]) for i in range(repeats)]
