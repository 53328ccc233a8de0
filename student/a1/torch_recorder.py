"""Records with torch.profiler where Nsight Systems is not installed, into the same CSV files.

torch.profiler sees every kernel and every CUDA call, but no NVTX range, and it does not project
ranges onto the GPU. So while it records, opening an NVTX range also opens a range of the
profiler's own, and the projection is made here, as nsys makes it: a GPU operation belongs to the
CUDA call that launched it (they share a correlation number), and that call belongs to every range
that was open on its thread. A backward pass runs on another thread on a GPU, so its kernels are in
no range of the main thread here either.

The recording is a Chrome trace, which https://ui.perfetto.dev shows as a timeline.
"""

import csv
import gzip
import json
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from a1.recording import Device, ProjectedRange, RecordingError

SUFFIX = ".trace.json.gz"  # of the recording
MARK = "nvtx:"  # before the profiler's ranges that stand for NVTX ranges; torch has others
DEVICE_KEY = "recorded_device"  # of the trace's metadata
RECORDER_KEY = "recorder"
OPERATIONS = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of events, as torch names them
CALLS = ("cuda_runtime", "cuda_driver")
HOST_OPERATIONS = ("cpu_op", "user_annotation")


# --- recording ------------------------------------------------------------------------------------


def record(run_steps: Callable[[], None], warm_up: Callable[[], None], path: Path) -> None:
    """Record what `run_steps` does, after a `warm_up` under the profiler that is not recorded.

    (The profiler's first step pays for its own setting up.) Writes a Chrome trace to `path`.
    Synchronizes with the GPU before and after.
    """
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]  # its ranges count as activities of the CPU
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    # Two active steps, of which one is begun: the profiler stops when the block ends.
    with (
        nvtx_seen_by_profiler(),
        profile(
            activities=activities, schedule=schedule(wait=0, warmup=1, active=2, repeat=1)
        ) as profiler,
    ):
        warm_up()
        _synchronize()
        profiler.step()
        profiler.add_metadata(RECORDER_KEY, f"torch.profiler {torch.__version__}")
        if device := current_device():
            profiler.add_metadata_json(DEVICE_KEY, json.dumps(asdict(device)))
        run_steps()
        _synchronize()
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def nvtx_seen_by_profiler() -> Iterator[None]:
    """Within the block, opening an NVTX range on any thread opens a profiler's range as well."""
    nvtx = torch.cuda.nvtx
    push, pop = nvtx.range_push, nvtx.range_pop
    open_ranges: dict[int, list] = defaultdict(list)  # of each thread

    def range_push(msg: str) -> int:
        mirror = torch.profiler.record_function(MARK + msg)
        mirror.__enter__()
        open_ranges[threading.get_ident()].append(mirror)
        return push(msg)

    def range_pop() -> int:
        if mine := open_ranges[threading.get_ident()]:  # empty: opened before the block
            mine.pop().__exit__(None, None, None)
        return pop()

    nvtx.range_push, nvtx.range_pop = range_push, range_pop
    try:
        yield
    finally:
        nvtx.range_push, nvtx.range_pop = push, pop


def current_device() -> Device | None:
    """The current GPU as torch describes it; None without one."""
    if not torch.cuda.is_available():
        return None
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    khz = getattr(gpu, "memory_clock_rate", 0)
    bus_bits = getattr(gpu, "memory_bus_width", 0)
    return Device(
        name=gpu.name,
        sms=gpu.multi_processor_count,
        clock_mhz=getattr(gpu, "clock_rate", 0) / 1e3 or None,
        # Two transfers per clock, of as many bits as the bus is wide.
        bandwidth_gbs=2 * khz * 1e3 * bus_bits / 8 / 1e9 or None,
        l2_mib=getattr(gpu, "L2_cache_size", 0) / 2**20 or None,
    )


# --- the trace ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenRange:
    """One opening of a range on the host."""

    name: str
    pid: int
    tid: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Call:
    """One CUDA call on the host."""

    name: str
    pid: int
    tid: int
    start_ns: int
    end_ns: int
    correlation: int | None


@dataclass(frozen=True)
class Operation:
    """One kernel, copy or memset on the GPU."""

    name: str
    is_kernel: bool
    start_ns: int
    end_ns: int
    correlation: int | None
    external: int | None = None  # of the torch operation that launched it


@dataclass(frozen=True)
class Trace:
    """What a Chrome trace of torch.profiler holds. The first event starts at 0 ns."""

    ranges: list[OpenRange] = field(repr=False)
    calls: list[Call] = field(repr=False)
    operations: list[Operation] = field(repr=False)
    host_operations: dict[int, Call] = field(repr=False, default_factory=dict)  # by external id
    device: Device | None = None
    recorder: str = "torch.profiler"

    @classmethod
    def read(cls, path: Path) -> "Trace":
        """Raises RecordingError if it is missing, is no such trace, or holds no kernel."""
        try:
            opener = gzip.open if path.suffix == ".gz" else open
            with opener(path, "rt", encoding="utf-8") as source:
                trace = cls.of(json.load(source))
        except FileNotFoundError:
            raise RecordingError(f"{path} is missing: record it again") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError) as wrong:
            raise RecordingError(f"{path} is not a trace of torch.profiler ({wrong})") from None
        if not any(op.is_kernel for op in trace.operations):
            raise RecordingError(f"{path.name}: no kernel ran in this recording")
        return trace

    @classmethod
    def of(cls, document: dict) -> "Trace":
        """From the parsed JSON. Events of other kinds are ignored."""
        spans = [e for e in document["traceEvents"] if e.get("ph") == "X" and "dur" in e]
        origin = min((_ns(e["ts"]) for e in spans), default=0)
        found: dict[str, list] = {"ranges": [], "calls": [], "operations": []}
        host_operations = {}
        for event in spans:
            start = _ns(event["ts"]) - origin
            end = start + _ns(event["dur"])
            category, name, args = event.get("cat"), event["name"], event.get("args", {})
            where = event["pid"], event["tid"]
            correlation = args.get("correlation") or None  # 0: nobody's
            external = args.get("External id") or None
            if category in OPERATIONS:
                found["operations"].append(
                    Operation(name, category == "kernel", start, end, correlation, external)
                )
            elif category in CALLS:
                found["calls"].append(Call(name, *where, start, end, correlation))
            elif category in HOST_OPERATIONS:
                host_operations[external] = Call(name, *where, start, end, None)
                if name.startswith(MARK):
                    found["ranges"].append(OpenRange(name.removeprefix(MARK), *where, start, end))
        found["host_operations"] = host_operations
        device = document.get(DEVICE_KEY)
        recorder = document.get(RECORDER_KEY) or "torch.profiler"
        return cls(**found, device=Device(**device) if device else None, recorder=recorder)

    def gpu_ops(self) -> list[tuple[int, int]]:
        return sorted((op.start_ns, op.end_ns) for op in self.operations)


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


# --- projection -----------------------------------------------------------------------------------


@dataclass
class Projection:
    """A range, and the GPU operations that were launched from inside it. Built by `project`."""

    range: OpenRange
    parent: "Projection | None"
    start_ns: int | None = None  # of the first operation; None: nothing was launched
    end_ns: int | None = None
    gpu_ops: int = 0

    def add(self, operation: Operation) -> None:
        if self.start_ns is None:
            self.start_ns, self.end_ns = operation.start_ns, operation.end_ns
        self.start_ns = min(self.start_ns, operation.start_ns)
        self.end_ns = max(self.end_ns, operation.end_ns)
        self.gpu_ops += 1

    def as_range(self) -> ProjectedRange:
        return ProjectedRange(self.range.name, self.start_ns, self.end_ns, self.gpu_ops)


def project(trace: Trace) -> list[Projection]:
    """Every range that launched anything, projected onto the GPU, in the order of opening.

    Ranges of one thread nest, so those around a call are the ones on that thread's stack.
    """
    launched_by = {}  # a runtime call and the driver's call inside it may share a number
    for call in sorted(trace.calls, key=lambda call: call.start_ns):
        if call.correlation is not None:
            launched_by.setdefault(call.correlation, call)
    launches = defaultdict(list)  # of each thread
    for operation in trace.operations:
        # The profiler notes only some of the driver's calls. Without the call, there is still the
        # torch operation around it, which is on the same thread and in the same ranges.
        call = launched_by.get(operation.correlation)
        if call is None and operation.external is not None:
            call = trace.host_operations.get(operation.external)
        if call is not None:
            launches[call.pid, call.tid].append((call.start_ns, operation))
    ranges = defaultdict(list)
    for opened in trace.ranges:
        ranges[opened.pid, opened.tid].append(opened)

    projections: list[Projection] = []
    for thread, mine in ranges.items():
        # Outer before inner where both start at once.
        waiting = sorted(mine, key=lambda r: (r.start_ns, -r.end_ns))[::-1]
        stack: list[Projection] = []
        for called_ns, operation in sorted(launches[thread], key=lambda launch: launch[0]):
            while waiting and waiting[-1].start_ns <= called_ns:
                _open(waiting.pop(), stack, projections)
            _close(stack, called_ns)
            for enclosing in stack:
                enclosing.add(operation)
    projections.sort(key=lambda p: (p.range.start_ns, -p.range.end_ns))
    return [p for p in projections if p.gpu_ops]


def _open(opened: OpenRange, stack: list[Projection], projections: list[Projection]) -> None:
    _close(stack, opened.start_ns)
    stack.append(Projection(opened, parent=stack[-1] if stack else None))
    projections.append(stack[-1])


def _close(stack: list[Projection], now_ns: int) -> None:
    while stack and stack[-1].range.end_ns < now_ns:
        stack.pop()


# --- the CSV files --------------------------------------------------------------------------------


def write_reports(trace: Trace, name: str, results: Path) -> None:
    """NAME_nvtx_gpu_proj_trace.csv and the two sums, with nsys's columns and one more, Recorder."""
    results.mkdir(parents=True, exist_ok=True)
    _write(results / f"{name}_nvtx_gpu_proj_trace.csv", _range_rows(project(trace)), trace)
    kernels, calls = defaultdict(list), defaultdict(list)
    for operation in trace.operations:
        if operation.is_kernel:
            kernels[operation.name].append(operation.end_ns - operation.start_ns)
    for call in trace.calls:
        calls[call.name].append(call.end_ns - call.start_ns)
    _write(results / f"{name}_cuda_gpu_kern_sum.csv", _sums(kernels, "Instances"), trace)
    _write(results / f"{name}_cuda_api_sum.csv", _sums(calls, "Num Calls"), trace)


def _range_rows(projections: list[Projection]) -> Iterator[dict]:
    number = {id(p): i for i, p in enumerate(projections, start=1)}
    children = defaultdict(int)
    for p in projections:
        children[id(p.parent)] += 1
    for p in projections:
        # Whatever is around a range that launched something launched it too, so it has a number.
        around, outer = [], p.parent
        while outer:
            around.insert(0, number[id(outer)])
            outer = outer.parent
        yield {
            "Name": f":{p.range.name}",
            "Projected Start (ns)": p.start_ns,
            "Projected Duration (ns)": p.end_ns - p.start_ns,
            "Orig Start (ns)": p.range.start_ns,
            "Orig Duration (ns)": p.range.end_ns - p.range.start_ns,
            "Style": "PushPop",
            "PID": p.range.pid,
            "TID": p.range.tid,
            "NumGPUOps": p.gpu_ops,
            "Lvl": len(around),
            "NumChild": children[id(p)],
            "RangeId": number[id(p)],
            "ParentId": around[-1] if around else "",
            "RangeStack": "".join(f":{i}" for i in [*around, number[id(p)]]),
        }


def _sums(durations_ns: dict[str, list[int]], count: str) -> Iterator[dict]:
    total = sum(map(sum, durations_ns.values()))
    for name, times in sorted(durations_ns.items(), key=lambda item: -sum(item[1])):
        yield {
            "Time (%)": f"{100 * sum(times) / total if total else 0:.1f}",
            "Total Time (ns)": sum(times),
            count: len(times),
            "Avg (ns)": f"{statistics.fmean(times):.1f}",
            "Med (ns)": f"{statistics.median(times):.1f}",
            "Min (ns)": min(times),
            "Max (ns)": max(times),
            "StdDev (ns)": f"{statistics.stdev(times) if len(times) > 1 else 0:.1f}",
            "Name": name,
        }


def _write(path: Path, rows: Iterator[dict], trace: Trace) -> None:
    rows = [{**row, "Recorder": trace.recorder} for row in rows]
    if not rows:
        path.unlink(missing_ok=True)  # as nsys, which writes no report about nothing
        return
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
