"""Does a tier do what the package `gpu` says? Prints a short table.

This is what the module `real` does when it is run as a program (`python -m`). The argument is the
tier, "cuda" unless given: the same rows hold on both. Times must be right to 2% and 0.2 ms.
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from . import open_gpu

MIB = 2**20


class Table:
    """Prints rows, and counts those that are not as expected."""

    def __init__(self):
        self.wrong = 0

    def ms(self, what: str, seen: float, expected: float) -> None:
        right = abs(seen - expected) <= 0.2 + 0.02 * abs(expected)
        self._row(what, f"{seen:.3f} ms", f"{expected:.3f} ms", right)

    def equal(self, what: str, seen, expected) -> None:
        self._row(what, seen, expected, seen == expected)

    def note(self, what: str, seen) -> None:
        print(f"      {what:<52} {seen}")

    def _row(self, what, seen, expected, right) -> None:
        self.wrong += not right
        print(f"{'ok' if right else 'WRONG':<5} {what:<52} {seen}")
        if not right:
            print(f"{'':<5} {'expected':<52} {expected}")


def _timed_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _event_ms(run) -> float:
    start, end = _timed_event(), _timed_event()
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _host_ms(gpu, run) -> float:
    gpu.sync()
    start = gpu.host_ms()
    run()
    return gpu.host_ms() - start


def _raised(run) -> str:
    try:
        run()
    except Exception as error:
        kind = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
        return f"{kind}: {str(error).splitlines()[0][:60]}"
    return "nothing"


def check_work(gpu, table: Table) -> None:
    for ms in (0.5, 5.0, 10.0, 30.0, 50.0):
        table.ms(f"work({ms:g}), by events", _event_ms(lambda ms=ms: gpu.work(ms)), ms)
    table.ms("work(10), host's clock, synchronized", _host_ms(gpu, lambda: _work(gpu, 10)), 10.0)
    table.ms("work(10), host's clock, not synchronized", _host_ms(gpu, lambda: gpu.work(10)), 0.0)
    table.ms("ten times work(3)", _event_ms(lambda: [gpu.work(3) for _ in range(10)]), 30.0)
    table.ms("host(8), by the host's clock", _host_ms(gpu, lambda: gpu.host(8)), 8.0)

    def behind_work():
        gpu.work(10)
        gpu.host(8)

    table.ms("host(8) behind work(10), by events", _event_ms(behind_work), 10.0)

    def two_streams():
        side = torch.cuda.Stream()
        gpu.work(20)
        with torch.cuda.stream(side):
            gpu.work(20)
        torch.cuda.synchronize()

    table.ms("work(20) in each of two streams", _host_ms(gpu, two_streams), 20.0)


def _work(gpu, ms: float) -> None:
    gpu.work(ms)
    torch.cuda.synchronize()


def check_slow(gpu, table: Table) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3)))
    model.to(gpu.device)
    x = torch.ones(8, 64, device=gpu.device)

    def step(recompute):
        y = x
        for layer in model:
            y = checkpoint(layer, y, use_reentrant=False) if recompute else layer(y)
        y.sum().backward()

    for recompute, expected in ((False, 80.0), (True, 110.0)):
        step(recompute)
        plain = _event_ms(lambda recompute=recompute: step(recompute))
        with gpu.slow(model[1], forward_ms=30.0, backward_ms=50.0):
            slowed = _event_ms(lambda recompute=recompute: step(recompute))
        name = f"a layer slower by 30 and 50, recompute={recompute}"
        table.ms(name, slowed - plain, expected)


def check_memory(gpu, table: Table) -> None:
    before = gpu.allocated_bytes()
    keep = torch.empty(8 * MIB, device=gpu.device)
    table.equal("32 MiB, allocated", (gpu.allocated_bytes() - before) / MIB, 32.0)
    gpu.reset_peak()
    keep.add(1)
    table.equal("32 MiB more for a moment, peak", (gpu.peak_bytes() - before) / MIB, 64.0)
    table.equal("afterwards, allocated", (gpu.allocated_bytes() - before) / MIB, 32.0)


def check_errors(gpu, table: Table) -> None:
    start, end, plain = _timed_event(), _timed_event(), torch.cuda.Event()
    start.record()
    table.equal(
        "an event never recorded",
        _raised(lambda: start.elapsed_time(end)),
        "ValueError: Both events must be recorded before calculating elapsed time",
    )
    plain.record()
    table.equal(
        "an event without timing",
        _raised(lambda: start.elapsed_time(plain)),
        "ValueError: Both events must be created with argument 'enable_timing=Tru",
    )
    gpu.work(20)
    end.record()
    seen = _raised(lambda: start.elapsed_time(end))
    table.equal("an event not reached", seen[:33], "RuntimeError: CUDA error: device ")
    table.equal("query of an event not reached", end.query(), False)
    gpu.sync()
    table.equal("query of an event reached", end.query(), True)


def check_record(gpu, table: Table) -> None:
    x = torch.ones(4, device=gpu.device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: grad.sum().item() and None)
    with gpu.record() as log:
        with torch.cuda.nvtx.range("outer"):
            gpu.work(1.0)
            torch.cuda.Event().record()
        float(y.detach().sum())
        y.detach().cpu()
        y.tolist()
        repr(y)
        y.detach().nonzero()
        y.detach().to(torch.bfloat16)
        (y * y).sum().backward()
        torch.cuda.current_stream().synchronize()
        torch.cuda.synchronize()
    seen = [
        entry["kind"] if entry["kind"] in ("work", "event_record") else entry["name"]
        for entry in log
    ]
    expected = ["outer", "work", "event_record", "outer", "item", "cpu", "tolist", "repr"]
    expected += ["nonzero", "item", "Stream.synchronize", "torch.cuda.synchronize"]
    table.equal("the log", " ".join(seen), " ".join(expected))


def note_the_queue(gpu, table: Table) -> None:
    """Figures that the virtual GPU's constants can be held against (`virtual.costs`)."""
    x = torch.ones(4, device=gpu.device)
    kernels = 500
    gpu.sync()
    gpu.work(100)
    launch_us = _host_ms_unsynchronized(gpu, lambda: [x.add_(1) for _ in range(kernels)])
    table.note("host time of one small operation", f"{launch_us / kernels * 1e3:.1f} us")

    def back_to_back():
        for _ in range(kernels):
            x.add_(1)

    gpu.sync()
    gpu.work(50)  # so that the queue is full of kernels before the first one starts
    table.note("device time of one", f"{_event_ms(back_to_back) / kernels * 1e3:.1f} us")
    gpu.sync()
    gpu.work(300)
    depth = 0
    while depth < 5000 and _host_ms_unsynchronized(gpu, lambda: x.add_(1)) < 20:
        depth += 1
    table.note("launches before the host waits", depth)
    gpu.sync()


def _host_ms_unsynchronized(gpu, run) -> float:
    start = gpu.host_ms()
    run()
    return gpu.host_ms() - start


def main() -> int:
    """Print the table; returns how many rows are wrong."""
    tier = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    table = Table()
    item = torch.Tensor.item
    with open_gpu(tier) as gpu:
        print(f"{gpu.name}, tier {gpu.tier}, torch {torch.__version__}")
        for check in (check_work, check_slow, check_memory, check_errors, check_record):
            check(gpu, table)
        note_the_queue(gpu, table)
    table.equal("put back afterwards", torch.Tensor.item is item, True)
    print(f"{table.wrong} wrong")
    return table.wrong
