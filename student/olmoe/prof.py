"""Measuring tools: GPU timers, NVTX ranges, and the GPU's own counters.

Nothing here needs a GPU to be imported. On a machine without one the ranges do nothing, and every
counter of GpuMonitor is NaN.
"""

import functools
import math
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

try:
    import pynvml  # the package nvidia-ml-py
except ImportError:
    pynvml = None


def cuda_time(fn: Callable[[], Any], warmup: int = 3, repeats: int = 10) -> list[float]:
    """Time each of several calls of `fn` on the GPU.

    Calls `fn()` exactly `warmup + repeats` times, with no arguments, and ignores what it returns.
    The first `warmup` calls are not timed and appear nowhere in the result; `warmup` may be 0.
    Each of the last `repeats` calls (at least 1) has a pair of CUDA events of its own, one
    recorded just before the call and one just after it, on the current stream.

    The timed calls are enqueued one after another, without waiting: the host does not synchronize
    with the GPU between the first timed call and the last. It waits once, after the last one, and
    reads the events only then. (Waiting between the warm-up and the first timed call is allowed,
    but not needed: events are stamped in the order of the stream, so warm-up calls that are still
    running are not part of the first time.)

    Args:
        fn: enqueues work on the current stream. It does not synchronize.
        warmup: how many calls to make before timing, 0 or more.
        repeats: how many calls to time, 1 or more.

    Returns:
        A list of `repeats` Python floats: the GPU time of each timed call in milliseconds, in the
        order of the calls. Not their mean, and not sorted: whoever called chooses the statistic.
    """
    raise NotImplementedError("Coding 1: cuda_time")


def in_backward() -> bool:
    """Whether the calling thread is running a backward pass (so a forward is a recomputation)."""
    return torch._C._current_graph_task_id() >= 0


def range_push(name: str) -> None:
    """Open an NVTX range on the calling thread; "recompute." is put before `name` in a backward.

    Without a GPU this does nothing. Returns None, so that it can be the last line of a hook: what
    a forward pre-hook returns, if it is not None, replaces the module's arguments.
    """
    # torch.cuda is asked at every call, not at import: the grader's virtual GPU stands in for it.
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_push(f"recompute.{name}" if in_backward() else name)


def range_pop() -> None:
    """Close the range that the calling thread opened last. Without a GPU this does nothing."""
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_pop()


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """`with nvtx_range("experts"):` is range_push before the block and range_pop after it."""
    range_push(name)
    try:
        yield
    finally:
        range_pop()


def annotate(model: nn.Module) -> Callable[[], None]:
    """Give every submodule of `model` an NVTX range named by its path, with forward hooks.

    A submodule's path is what `model.named_modules()` calls it, as in "layers.3.attn". `model`
    itself, whose path is empty, gets no range. A submodule that can be reached by several paths
    has one range, named by the first of them in the order of `named_modules()`.

    Every call of a submodule opens one range just before its forward and closes it just after,
    however deep the submodule is and however often it is called, so ranges nest as the calls do.
    (A container such as nn.ModuleList is never called, so its range never opens.) The range is
    closed also when the forward raises: then PyTorch skips forward hooks, except those registered
    with `always_call=True`, and gives these None for an output. The exception goes on as it is.

    Ranges are opened with `range_push` and closed with `range_pop`, above, so a submodule that is
    called during a backward pass appears as "recompute.layers.3.attn".

    The model computes exactly what it did before: hooks change neither arguments nor outputs, and
    nothing synchronizes with the GPU.

    Args:
        model: any module. Its submodules may have hooks already; those are left alone.

    Returns:
        A function of no arguments that takes off every hook which this call put on, and no other.
        After it the model opens no range, and can be annotated again.
    """
    raise NotImplementedError("Coding 4: annotate")


@dataclass(frozen=True)
class GpuCounters:
    """Means of the GPU's counters over some seconds; NaN where the GPU does not tell."""

    kernel_percent: float = math.nan  # share of the time in which at least one kernel was running
    memory_percent: float = math.nan  # share of the time in which memory was read or written
    clock_mhz: float = math.nan  # clock of the streaming multiprocessors
    power_w: float = math.nan

    def __str__(self) -> str:
        def show(value: float, unit: str) -> str:
            return "n/a" if math.isnan(value) else f"{value:.0f}{unit}"

        return (
            f"kernel running {show(self.kernel_percent, '%'):>4}   "
            f"memory busy {show(self.memory_percent, '%'):>4}   "
            f"{show(self.clock_mhz, ' MHz'):>8}   {show(self.power_w, ' W'):>5}"
        )


# One query for each counter. (NVML answers the first two together, but they are refused together
# as well, and asking twice is cheap.)
_QUERIES: dict[str, Callable[[Any], float]] = {
    "kernel_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "clock_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,  # NVML says milliwatts
}


class GpuMonitor:
    """Samples the counters of the GPU that torch is using, in a thread, while a block runs.

        with GpuMonitor() as monitor:
            ...                       # something that runs steadily for a few seconds
        print(monitor.counters)       # a GpuCounters

    The counters come from NVML, the library behind nvidia-smi, which averages utilisation over up
    to a second. So samples of the first `settle_s` seconds are not taken: they would tell of what
    ran before the block. A block that is over sooner leaves NaN.

    Machines differ in what they let a program read (containers, MIG and WSL refuse some counters).
    A counter that is refused is NaN, never 0; the others are measured all the same, and a line on
    stderr says which one is missing and why, once per process. Without NVML, or without a GPU, all
    are NaN. Nothing is raised.

    Args:
        interval_s: seconds between two samples.
        settle_s: seconds to wait before the first sample.
    """

    def __init__(self, interval_s: float = 0.1, settle_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self.settle_s = settle_s
        self.counters = GpuCounters()
        self._samples: dict[str, list[float]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "GpuMonitor":
        self.counters = GpuCounters()
        self._samples = {field.name: [] for field in fields(GpuCounters)}
        self._stop.clear()
        gpu = _open_nvml()
        if gpu is not None:
            # A daemon, so that an interpreter that is shutting down does not wait for it.
            self._thread = threading.Thread(target=self._watch, args=(gpu,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        pynvml.nvmlShutdown()
        means = {name: statistics.fmean(seen) for name, seen in self._samples.items() if seen}
        self.counters = GpuCounters(**means)

    def _watch(self, gpu: Any) -> None:
        if self._stop.wait(self.settle_s):
            _say_once(f"GPU counters need a block of more than {self.settle_s:g} s")
            return
        while True:
            for name, query in _QUERIES.items():
                try:
                    self._samples[name].append(query(gpu))
                except pynvml.NVMLError as refusal:
                    _say_once(f"this GPU does not tell its {name}: NVML says {refusal}")
            if self._stop.wait(self.interval_s):
                return


def _open_nvml() -> Any | None:
    """NVML's handle of the GPU that torch is using, NVML initialised; None, and why, without."""
    if not torch.cuda.is_available():
        _say_once("no GPU counters: torch finds no GPU")
        return None
    if pynvml is None:
        _say_once("no GPU counters: the package nvidia-ml-py is not installed")
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as refusal:
        _say_once(f"no GPU counters: NVML says {refusal}")
        return None
    # By UUID: NVML numbers every GPU of the machine, torch those of CUDA_VISIBLE_DEVICES.
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = getattr(properties, "uuid", "without a UUID")  # a virtual GPU may have none
    for kind in ("GPU", "MIG"):
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}")
        except pynvml.NVMLError as error:
            refusal = error
    pynvml.nvmlShutdown()
    _say_once(f"no GPU counters: NVML does not know the GPU {uuid}: it says {refusal}")
    return None


@functools.cache
def _say_once(message: str) -> None:
    print(message, file=sys.stderr)
