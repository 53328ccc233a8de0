"""What `torch.cuda` offers, on the virtual GPU: events, streams, NVTX, memory, the device.

Everything here asks `installed()` for the machine at the moment of the call, so objects and names
that outlive one virtual GPU work with the next. Errors are the ones torch raises.
"""

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import torch

from ..patches import Patches
from . import costs
from .installed import installed
from .machine import NS_PER_MS
from .modes import on_cpu

_threads = threading.local()


class Event:
    """`torch.cuda.Event`: a mark in a stream, stamped when the device gets there."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self._timed = bool(enable_timing)
        self._reached_ns = None
        self._number = installed().machine.new_event()

    def record(self, stream=None) -> None:
        machine = installed().machine
        queue = _queue(stream)
        self._reached_ns = machine.mark(queue)
        machine.log(
            "event_record",
            "event",
            event=self._number,
            stream=queue.number,
            device_ms=self._reached_ns / NS_PER_MS,
        )

    def wait(self, stream=None) -> None:
        """Make `stream` (default: the current one) wait for this event."""
        if self._reached_ns is not None:
            installed().machine.wait(_queue(stream), self._reached_ns)

    def query(self) -> bool:
        return installed().machine.poll(self._reached_ns or 0)

    def synchronize(self) -> None:
        installed().machine.synchronize("Event.synchronize", self._reached_ns or 0)

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds of device time from this event to `end_event`."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._reached_ns is None or end_event._reached_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if max(self._reached_ns, end_event._reached_ns) > installed().machine.now:
            raise RuntimeError(
                "CUDA error: device not ready: the device has not reached both events yet"
            )
        return (end_event._reached_ns - self._reached_ns) / NS_PER_MS

    def __repr__(self):
        return f"<torch.cuda.Event {self._number} of the virtual GPU>"


class GenericEvent(Event):
    """`torch.Event(device, enable_timing=...)`, which names the device first."""

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        super().__init__(enable_timing, blocking, interprocess)
        self.device = torch.device("cuda", 0)


class Stream:
    """`torch.cuda.Stream`: a queue of its own. Work in two streams overlaps at no cost."""

    def __init__(self, device=None, priority=0, _queue=None, **kwargs):
        self._queue = _queue or installed().machine.new_stream()
        self._outer = []
        self.priority = priority

    @property
    def stream_id(self) -> int:
        return self._queue.number

    cuda_stream = stream_id

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: "Stream") -> None:
        installed().machine.wait(self._queue, stream._queue.free_at)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return installed().machine.poll(self._queue.free_at)

    def synchronize(self) -> None:
        installed().machine.synchronize("Stream.synchronize", stream=self._queue)

    def is_capturing(self) -> bool:
        """Never: the virtual GPU has no CUDA graphs. torch's optimizers ask."""
        return False

    def __enter__(self):
        machine = installed().machine
        self._outer.append(machine.current_stream)
        machine.current_stream = self._queue
        return self

    def __exit__(self, *_):
        installed().machine.current_stream = self._outer.pop()

    def __eq__(self, other):
        return isinstance(other, Stream) and other._queue is self._queue

    def __hash__(self):
        return hash(id(self._queue))

    def __repr__(self):
        return f"<torch.cuda.Stream {self._queue.number} of the virtual GPU>"


def _queue(stream: Stream | None):
    return installed().machine.current_stream if stream is None else stream._queue


@contextmanager
def _stream_context(stream: Stream | None):
    if stream is None:
        yield
    else:
        with stream:
            yield


def _set_stream(stream: Stream) -> None:
    installed().machine.current_stream = stream._queue


def _synchronize(device=None) -> None:
    installed().machine.synchronize("torch.cuda.synchronize")


def _sleep(cycles: int) -> None:
    duration_ns = round(cycles * NS_PER_MS / costs.SLEEP_CYCLES_PER_MS)
    installed().machine.launch(max(costs.KERNEL_FLOOR_NS, duration_ns), "work", "torch.cuda._sleep")


# -- NVTX -----------------------------------------------------------------------------------------


def _open_ranges() -> list[str]:
    machine = installed().machine
    if getattr(_threads, "machine", None) is not machine:
        _threads.machine, _threads.ranges = machine, []
    return _threads.ranges


def range_push(msg: str) -> int:
    """Open a range; returns its zero-based depth."""
    ranges = _open_ranges()
    installed().machine.advance(costs.NVTX_NS)
    ranges.append(str(msg))
    installed().machine.log("range_push", ranges[-1])
    return len(ranges) - 1


def range_pop() -> int:
    """Close the innermost range; returns its zero-based depth, or -2 (as NVTX) if none is open."""
    ranges = _open_ranges()
    installed().machine.advance(costs.NVTX_NS)
    installed().machine.log("range_pop", ranges[-1] if ranges else "")
    if not ranges:
        return -2
    ranges.pop()
    return len(ranges)


@contextmanager
def range_(msg: str, *args, **kwargs):
    """`torch.cuda.nvtx.range`: a range as a context manager or decorator."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _mark(msg: str) -> None:
    installed().machine.advance(costs.NVTX_NS)
    installed().machine.log("mark", str(msg))


def _range_start(msg: str) -> int:
    installed().machine.log("range_start", str(msg))
    return installed().machine.advance(costs.NVTX_NS)


def _range_end(range_id: int) -> None:
    installed().machine.log("range_end", "")
    installed().machine.advance(costs.NVTX_NS)


# -- memory and the device ------------------------------------------------------------------------


def _memory_stats(device=None) -> dict[str, int]:
    ledger = installed().ledger
    return {
        "allocated_bytes.all.current": ledger.allocated_bytes,
        "allocated_bytes.all.peak": ledger.peak_bytes,
        "reserved_bytes.all.current": ledger.reserved_bytes,
        "reserved_bytes.all.peak": ledger.reserved_bytes,
    }


def _empty_cache() -> None:
    installed().ledger.release_cache()


def _mem_get_info(device=None) -> tuple[int, int]:
    ledger = installed().ledger
    return ledger.capacity_bytes - ledger.reserved_bytes, ledger.capacity_bytes


def _device_properties(device=None) -> SimpleNamespace:
    gpu = installed()
    major, minor = _capability()
    return SimpleNamespace(
        name=gpu.name,
        total_memory=gpu.ledger.capacity_bytes,
        multi_processor_count=getattr(gpu.sheet, "sms", 132),
        L2_cache_size=round(getattr(gpu.sheet, "l2_mib", 50) * 2**20),
        major=major,
        minor=minor,
    )


def _capability(device=None) -> tuple[int, int]:
    major, _, minor = str(getattr(installed().sheet, "compute_capability", "9.0")).partition(".")
    return int(major), int(minor or 0)


@contextmanager
def _device_context(device=None):
    yield


class _GeneratorType(type):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, _CpuGenerator)

    def __call__(cls, device="cpu"):
        return _CpuGenerator(on_cpu(device))


_CpuGenerator = torch.Generator


class Generator(metaclass=_GeneratorType):
    """`torch.Generator`, which for a CUDA device is the CPU's."""


def _nothing(*_, **__) -> None:
    """Something the virtual GPU has no use for, such as a seed or a profiler's switch."""


_MEMORY = {
    "memory_allocated": lambda device=None: installed().ledger.allocated_bytes,
    "max_memory_allocated": lambda device=None: installed().ledger.peak_bytes,
    "memory_reserved": lambda device=None: installed().ledger.reserved_bytes,
    "max_memory_reserved": lambda device=None: installed().ledger.reserved_bytes,
    "reset_peak_memory_stats": lambda device=None: installed().ledger.reset_peak(),
    "reset_max_memory_allocated": lambda device=None: installed().ledger.reset_peak(),
    "reset_accumulated_memory_stats": _nothing,
    "empty_cache": _empty_cache,
    "memory_stats": _memory_stats,
    "mem_get_info": _mem_get_info,
    "memory_summary": lambda device=None, abbreviated=False: str(_memory_stats()),
}

_CUDA = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": _nothing,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": _nothing,
    "device": _device_context,
    "get_device_name": lambda device=None: installed().name,
    "get_device_properties": _device_properties,
    "get_device_capability": _capability,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_current_stream_capturing": lambda: False,
    "Event": Event,
    "Stream": Stream,
    "synchronize": _synchronize,
    "current_stream": lambda device=None: Stream(_queue=installed().machine.current_stream),
    "default_stream": lambda device=None: Stream(_queue=installed().machine.default_stream),
    "stream": _stream_context,
    "set_stream": _set_stream,
    "set_sync_debug_mode": _nothing,
    "get_sync_debug_mode": lambda: 0,
    "manual_seed": _nothing,
    "manual_seed_all": _nothing,
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "set_rng_state": _nothing,
    "seed": _nothing,
    "seed_all": _nothing,
    "ipc_collect": _nothing,
    "_sleep": _sleep,
    "cudart": lambda: SimpleNamespace(cudaProfilerStart=_nothing, cudaProfilerStop=_nothing),
}

_NVTX = {
    "range_push": range_push,
    "range_pop": range_pop,
    "range": range_,
    "mark": _mark,
    "range_start": _range_start,
    "range_end": _range_end,
}

_ACCELERATOR = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: 0,
    "set_device_index": _nothing,
    "get_memory_info": _mem_get_info,
    "synchronize": _synchronize,
    "current_stream": _CUDA["current_stream"],
    "set_stream": _set_stream,
    **{name: _MEMORY[name] for name in ("memory_allocated", "max_memory_allocated")},
    **{name: _MEMORY[name] for name in ("memory_reserved", "max_memory_reserved")},
    **{name: _MEMORY[name] for name in ("reset_peak_memory_stats", "empty_cache", "memory_stats")},
}


def patch(patches: Patches) -> None:
    """Put the virtual GPU into `torch.cuda`, `torch.accelerator` and what goes with them."""
    for module, names in (
        (torch.cuda, _CUDA | _MEMORY),
        (torch.cuda.memory, _MEMORY),
        (torch.cuda.nvtx, _NVTX),
        (torch.cuda.profiler, {"start": _nothing, "stop": _nothing}),
        (torch.accelerator, _ACCELERATOR),
        (torch, {"Event": GenericEvent, "Stream": Stream, "Generator": Generator}),
    ):
        for name, value in names.items():
            patches.set_if_there(module, name, value)
