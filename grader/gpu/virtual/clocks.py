"""Python's clocks, read from the virtual GPU's host.

The functions are made once, so `from time import perf_counter` in a module that is imported while
one virtual GPU is open reads the next one too, and the real clock when none is. Threads other than
the one that opened the virtual GPU always see real time: a background thread that sleeps between
samples must neither spin nor move the clock.
"""

import time
import timeit

from ..patches import Patches
from . import costs
from .installed import owned


def _nanoseconds(real, offset_ns: int):
    def clock() -> int:
        gpu = owned()
        return real() if gpu is None else offset_ns + gpu.machine.advance(costs.CLOCK_READ_NS)

    return clock


def _seconds(real, offset_ns: int):
    def clock() -> float:
        gpu = owned()
        if gpu is None:
            return real()
        return (offset_ns + gpu.machine.advance(costs.CLOCK_READ_NS)) / 1e9

    return clock


def _busy_nanoseconds(real):
    """A clock that stands still while the process sleeps, but not while it spins on the device."""

    def clock() -> int:
        gpu = owned()
        if gpu is None:
            return real()
        return gpu.machine.advance(costs.CLOCK_READ_NS) - gpu.machine.asleep

    return clock


def _busy_seconds(real):
    def clock() -> float:
        gpu = owned()
        if gpu is None:
            return real()
        return (gpu.machine.advance(costs.CLOCK_READ_NS) - gpu.machine.asleep) / 1e9

    return clock


def _sleep(real):
    def sleep(seconds):
        gpu = owned()
        if gpu is None:
            return real(seconds)
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        gpu.machine.sleep(round(seconds * 1e9))
        return None

    return sleep


def _all_clocks() -> dict:
    clocks = {
        "time": _seconds(time.time, costs.EPOCH_NS),
        "time_ns": _nanoseconds(time.time_ns, costs.EPOCH_NS),
        "process_time": _busy_seconds(time.process_time),
        "process_time_ns": _busy_nanoseconds(time.process_time_ns),
        "sleep": _sleep(time.sleep),
    }
    for name in ("perf_counter", "monotonic"):
        clocks[name] = _seconds(getattr(time, name), costs.BOOT_NS)
        clocks[name + "_ns"] = _nanoseconds(getattr(time, name + "_ns"), costs.BOOT_NS)
    if hasattr(time, "thread_time"):
        clocks["thread_time"] = _busy_seconds(time.thread_time)
        clocks["thread_time_ns"] = _busy_nanoseconds(time.thread_time_ns)
    for name, clock in clocks.items():
        clock.__name__ = clock.__qualname__ = name
    return clocks


_CLOCKS = _all_clocks()


def patch(patches: Patches) -> None:
    """Put the virtual clocks into `time` and `timeit`."""
    for name, clock in _CLOCKS.items():
        patches.set(time, name, clock)
    patches.set(timeit, "default_timer", _CLOCKS["perf_counter"])
