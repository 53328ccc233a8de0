"""Returns a list of tensors.

exercise: C1
caught by: C1.1
says: in cuda_time's list is a tensor
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
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [torch.tensor(start.elapsed_time(end)) for start, end in pairs]
