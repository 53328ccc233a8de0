"""The stream records the events, and is waited for.

exercise: C1
"""


# file: olmoe/prof.py
def cuda_time(fn: "Callable[[], object]", warmup: "int" = 3, repeats: "int" = 10) -> "list[float]":
    for _ in range(warmup):
        fn()
    stream = torch.cuda.current_stream()
    pairs = []
    for _ in range(repeats):
        start = stream.record_event(torch.cuda.Event(enable_timing=True))
        fn()
        end = stream.record_event(torch.cuda.Event(enable_timing=True))
        pairs.append((start, end))
    stream.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]
