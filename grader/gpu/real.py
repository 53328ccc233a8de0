"""The machine's own CUDA device, behind the interface of the package `gpu`.

Run as a program (`python -m`), it checks itself on a GPU: see `check`.
"""

import functools
import statistics
import threading
import time
import warnings
from contextlib import contextmanager

import torch

from .patches import Patches
from .slow import Delays

_CALIBRATION_MS = (4.0, 24.0)
_MAX_ERROR = 0.02


def _sleep_ms(cycles: int) -> float:
    """GPU time of one `torch.cuda._sleep`."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


@functools.cache
def cycles_per_ms() -> float:
    """How many cycles `torch.cuda._sleep` spins per ms, measured once per process.

    The spin counts cycles of the SM's clock, which a GPU raises when it becomes busy, so the clock
    is first brought up. The slope between a short and a long spin leaves the launch out.
    """
    torch.cuda.synchronize()
    rate = 1e6
    for _ in range(5):
        short, long = (round(ms * rate) for ms in _CALIBRATION_MS)
        for _ in range(10):  # about a quarter of a second: the clock has settled
            _sleep_ms(long)
        slopes = [(long - short) / (_sleep_ms(long) - _sleep_ms(short)) for _ in range(7)]
        rate = statistics.median(slopes)
        checks = [_sleep_ms(round(10 * rate)) for _ in range(5)]
        if abs(statistics.median(checks) - 10) < 10 * _MAX_ERROR:
            return rate
    warnings.warn(
        f"the GPU's clock is not steady: gpu.work(10) takes {statistics.median(checks):.2f} ms. "
        "Is another process using this GPU?",
        stacklevel=2,
    )
    return rate


class _Recorder:
    """Logs being recorded. Entries come from the autograd engine's threads too."""

    def __init__(self):
        self._logs = []
        self._inside = threading.local()

    def add(self, kind: str, name: str, **details) -> None:
        entry = {"kind": kind, "name": name, "host_ms": time.perf_counter() * 1e3, **details}
        for log in self._logs:
            log.append(dict(entry))

    def outermost(self) -> bool:
        return not getattr(self._inside, "depth", 0)

    @contextmanager
    def within(self):
        """Inside, calls that torch makes of wrapped functions are not entries of their own."""
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            yield
        finally:
            self._inside.depth -= 1

    @contextmanager
    def record(self):
        log = []
        self._logs.append(log)
        try:
            yield log
        finally:
            self._logs = [each for each in self._logs if each is not log]


@functools.cache
def _recorder() -> _Recorder:
    """One per process: functions that were wrapped once and are still held somewhere use it too."""
    return _Recorder()


class RealGpu(Delays):
    """The current CUDA device."""

    tier = "cuda"
    device = "cuda"

    def __init__(self):
        self.name = torch.cuda.get_device_name()
        self._cycles_per_ms = cycles_per_ms()

    def work(self, ms: float, name: str = "work") -> None:
        if not ms >= 0:
            raise ValueError(f"a duration in ms must be zero or more, not {ms!r}")
        _recorder().add("work", name, duration_ms=ms)
        torch.cuda._sleep(round(ms * self._cycles_per_ms))

    def host(self, ms: float) -> None:
        until = time.perf_counter() + ms / 1e3
        while time.perf_counter() < until:
            pass

    def sync(self) -> None:
        _recorder().add("synchronize", "gpu.sync")
        with _recorder().within():
            torch.cuda.synchronize()

    def host_ms(self) -> float:
        return time.perf_counter() * 1e3

    def allocated_bytes(self) -> int:
        return torch.cuda.memory_allocated()

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated()

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def adopt(self, *owners) -> None:
        """Nothing to do: the caching allocator has counted them."""

    def record(self, launches: bool = False):
        return _recorder().record()


@contextmanager
def real_gpu(sheet=None):
    """The machine's GPU while the block runs, with what `record` listens to wrapped.

    sheet: not used. Raises RuntimeError if there is no CUDA device, or if one is open already.
    """
    if not torch.cuda.is_available():
        raise RuntimeError(
            "no CUDA device is available: run on a GPU node, or use the tier 'virtual'"
        )
    if hasattr(torch.Tensor.item, "__wrapped__"):
        raise RuntimeError("a GPU is already open in this process; leave its `with` block first")
    gpu = RealGpu()
    patches = Patches()
    try:
        _listen(patches)
        yield gpu
    finally:
        patches.restore()


# -- what is listened to --------------------------------------------------------------------------

_READS = {
    "item": "item", "__bool__": "item", "__int__": "item", "__float__": "item",
    "__index__": "item", "cpu": "cpu", "tolist": "tolist", "numpy": "numpy", "to": "to",
    "__repr__": "repr", "nonzero": "nonzero", "masked_select": "masked_select",
}  # fmt: skip
"""Methods of Tensor that wait for the device, and the cause they are logged as."""


def _listen(patches: Patches) -> None:
    """Wrap ranges, events, and everything that waits for the device."""
    recorder = _recorder()

    def before(target, attribute, kind, name_of, **extra):
        """Log a call, then make it."""
        function = getattr(target, attribute)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            if not recorder.outermost():
                return function(*args, **kwargs)
            details = {key: value(args) for key, value in extra.items()}
            recorder.add(kind, name_of(args, kwargs), **details)
            with recorder.within():
                return function(*args, **kwargs)

        patches.set(target, attribute, wrapper)

    def message(args, kwargs) -> str:
        return str(args[0] if args else kwargs.get("msg", ""))

    ranges = threading.local()

    def pushed(args, kwargs) -> str:
        ranges.open = [*getattr(ranges, "open", []), message(args, kwargs)]
        return ranges.open[-1]

    def popped(args, kwargs) -> str:
        names = getattr(ranges, "open", [])
        ranges.open = names[:-1]
        return names[-1] if names else ""

    before(torch.cuda.nvtx, "range_push", "range_push", pushed)
    before(torch.cuda.nvtx, "range_pop", "range_pop", popped)
    before(torch.cuda.nvtx, "mark", "mark", message)

    numbers = {}

    def number(args) -> int:
        event = args[0]
        return numbers.setdefault(id(event), (len(numbers) + 1, event))[0]

    before(torch.cuda.Event, "record", "event_record", lambda *_: "event", event=number)
    for target, attribute, cause in (
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda.Event, "synchronize", "Event.synchronize"),
        (torch.cuda.Stream, "synchronize", "Stream.synchronize"),
    ):
        before(target, attribute, "synchronize", lambda *_, cause=cause: cause)

    for method, cause in _READS.items():
        patches.set(torch.Tensor, method, _reading(recorder, getattr(torch.Tensor, method), cause))


def _reading(recorder: _Recorder, function, cause: str):
    """A Tensor method that is logged when it takes data off the device."""

    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        if not (recorder.outermost() and self.is_cuda):
            return function(self, *args, **kwargs)
        with recorder.within():
            result = function(self, *args, **kwargs)
        stays = cause == "to" and (result.is_cuda or kwargs.get("non_blocking"))
        if not stays:
            recorder.add("synchronize", cause)
        return result

    return wrapper


if __name__ == "__main__":
    from .check import main

    raise SystemExit(main())
