"""Waits for each event, but only when all calls are made.

exercise: C1
"""

# file: olmoe/prof.py
from contextlib import contextmanager


def cuda_time(fn, warmup=3, repeats=10):
    events = []

    @contextmanager
    def timed():
        events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        events[-1][0].record(torch.cuda.current_stream())
        yield
        events[-1][1].record(torch.cuda.current_stream())

    for call in range(warmup + repeats):
        if call < warmup:
            fn()
            continue
        with timed():
            fn()

    times = []
    for start, end in events:
        end.synchronize()
        times.append(float(start.elapsed_time(end)))
    return times
