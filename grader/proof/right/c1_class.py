"""A class whose instances are called and remember their events.

exercise: C1
"""


# file: olmoe/prof.py
class _Timed:
    def __init__(self, fn):
        self.fn = fn
        self.pairs = []

    def __call__(self):
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        self.fn()
        pair[1].record()
        self.pairs.append(pair)

    def times(self):
        self.pairs[-1][1].synchronize()
        return [a.elapsed_time(b) for a, b in self.pairs]


def cuda_time(fn, warmup=3, repeats=10):
    timed = _Timed(fn)
    for i in range(warmup + repeats):
        timed() if i >= warmup else fn()
    return timed.times()
