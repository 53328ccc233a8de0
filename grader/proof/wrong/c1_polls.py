"""Asks every end event until it is there, instead of synchronizing.

exercise: C1
caught by: C1.3
says: only then makes the next call
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
        while not end.query():
            pass
        pairs.append((start, end))
    return [start.elapsed_time(end) for start, end in pairs]
