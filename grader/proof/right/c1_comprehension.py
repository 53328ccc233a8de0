"""A helper for one call, and comprehensions.

exercise: C1
"""


# file: olmoe/prof.py
def _event():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def cuda_time(fn, warmup=3, repeats=10):
    [fn() for _ in range(warmup)]
    triples = [(_event(), fn(), _event()) for _ in range(repeats)]
    torch.cuda.synchronize()
    return [first.elapsed_time(last) for first, _, last in triples]
