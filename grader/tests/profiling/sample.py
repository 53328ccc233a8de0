"""Small recordings with known answers, in the forms in which nsys and torch.profiler leave them."""

import csv
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from a1.recording import ProjectedRange
from a1.torch_recorder import DEVICE_KEY, MARK, RECORDER_KEY

MS = 1_000_000
ROOT = Path(__file__).parents[3]
ENV = os.environ | {  # of a process that runs the scripts, with the staff's solution
    "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("staff", "student", ".")),
    "OMP_NUM_THREADS": "1",
}
SAMPLES = Path(__file__).with_name("samples")  # of one recording by nsys 2025.3.1 on an H200

RANGE_HEADER = (
    "Name", "Projected Start (ns)", "Projected Duration (ns)", "Orig Start (ns)",
    "Orig Duration (ns)", "Style", "PID", "TID", "NumGPUOps", "Lvl", "NumChild", "RangeId",
    "ParentId", "RangeStack",
)  # fmt: skip

# One training step of two layers with recomputation, in ms: forward 0 to 10, backward 10 to 34 with
# recomputations at 14 to 18 and at 24 to 29, optimizer 34 to 40. One operation per ms, 0.8 ms long.
STEP_MS = 40
BACKWARD_MS = 24 - 4 - 5
TRAIN_RANGES = (
    ("step", 0, 40, 16),
    ("forward", 0, 10, 10),
    ("layers.0", 1, 5, 4),
    ("layers.1", 5, 8, 3),
    ("backward", 10, 11, 1),
    ("recompute.layers.1", 14, 18, 4),
    ("recompute.layers.1.moe", 16, 18, 2),
    ("recompute.layers.0", 24, 29, 5),
    ("optimizer", 34, 40, 6),
)


def train_ranges(steps: int = 1) -> list[ProjectedRange]:
    """The projected ranges of `steps` such steps, one every 50 ms."""
    return [
        ProjectedRange(name, (50 * i + start) * MS, (50 * i + end) * MS, ops)
        for i in range(steps)
        for name, start, end, ops in TRAIN_RANGES
    ]


def train_ops(steps: int = 1) -> list[tuple[int, int]]:
    """Start and end of the GPU operations of `steps` such steps."""
    return [
        ((50 * i + j) * MS, (50 * i + j) * MS + 800_000)
        for i in range(steps)
        for j in range(STEP_MS)
    ]


def range_csv(path: Path, ranges: list[ProjectedRange], **replaced) -> Path:
    """A nvtx_gpu_proj_trace report of these ranges, all on one thread."""
    with path.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(replaced.get("header", RANGE_HEADER))
        for i, r in enumerate(ranges, start=1):
            duration = r.end_ns - r.start_ns
            rows.writerow(
                [f":{r.name}", r.start_ns, duration, r.start_ns, duration, "PushPop", 7, 7,
                 r.gpu_ops, 0, 0, i, "", f":{i}"]
            )  # fmt: skip
    return path


def sum_csv(path: Path, count: str, **durations_ns: list[int]) -> Path:
    """A cuda_gpu_kern_sum or cuda_api_sum report."""
    with path.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(
            ["Time (%)", "Total Time (ns)", count, "Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)",
             "StdDev (ns)", "Name"]
        )  # fmt: skip
        total = sum(map(sum, durations_ns.values()))
        for name, times in durations_ns.items():
            each = times[0]
            rows.writerow(
                [f"{100 * sum(times) / total:.1f}", sum(times), len(times), each, each, each,
                 each, 0, name]
            )  # fmt: skip
    return path


# --- the SQLite export ----------------------------------------------------------------------------

METRICS = (  # as nsys 2025.3 names them on an H200, with ones that must not be mistaken for ours
    "GPC Clock Frequency [MHz]",
    "GR Active [Throughput %]",
    "SMs Active [Throughput %]",
    "SM Issue [Throughput %]",
    "Tensor Active [Throughput %]",
    "Unallocated Warps in Active SMs [Throughput %]",
    "DRAM Read Bandwidth [Throughput %]",
    "DRAM Write Bandwidth [Throughput %]",
    "SMs Active [Avg]",
)
STREAM = 0x0101_0000_0000_0000  # type of the samples of GPU 0; the low byte is the GPU's number
H200 = (0, "NVIDIA H200", 132, 1_980_000_000, 4_814_259_200_000, 60 * 2**20)


def sqlite_export(
    path: Path,
    ops: list[tuple[int, int]] = (),
    *,
    gpus: tuple = (H200,),
    cuda_to_gpu: dict[int, int] | None = None,
    cuda_device: int = 0,
    metrics: dict[int, list[tuple[int, dict[str, float]]]] | None = None,
    generic: dict[int, list[tuple[int, str]]] | None = None,
) -> Path:
    """An export with the tables that the recording has something for, as nsys makes it.

    metrics: stream -> [(time in ns, {metric name: value})].  generic: the older form, with JSON.
    """
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE ANALYSIS_DETAILS (duration INTEGER)")
        for table, mine in (("KERNEL", ops[::2]), ("MEMCPY", ops[1::4]), ("MEMSET", ops[3::4])):
            if mine:
                name = f"CUPTI_ACTIVITY_KIND_{table}"
                db.execute(f"CREATE TABLE {name} (start, end, deviceId, correlationId)")
                db.executemany(
                    f"INSERT INTO {name} VALUES (?, ?, ?, ?)",
                    [(start, end, cuda_device, i) for i, (start, end) in enumerate(mine)],
                )
        db.execute(
            "CREATE TABLE TARGET_INFO_GPU "
            "(id, name, smCount, clockRate, memoryBandwidth, l2CacheSize, totalMemory)"
        )
        db.executemany("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, ?, ?, ?, ?, 0)", gpus)
        if cuda_to_gpu:
            db.execute("CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)")
            db.executemany(
                "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, 7)",
                [(gpu, cuda) for cuda, gpu in cuda_to_gpu.items()],
            )
        if metrics:
            _metric_tables(db, metrics)
        if generic:
            db.execute("CREATE TABLE GENERIC_EVENTS (rawTimestamp, timestamp, typeId, data)")
            db.executemany(
                "INSERT INTO GENERIC_EVENTS VALUES (?, ?, ?, ?)",
                [(t + 5, t, stream, data) for stream, seen in generic.items() for t, data in seen],
            )
        db.commit()
    return path


def _metric_tables(db: sqlite3.Connection, metrics: dict) -> None:
    db.execute(
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId, sourceId, typeName, metricId, metricName)"
    )
    db.execute("CREATE TABLE GPU_METRICS (rawTimestamp, timestamp, typeId, metricId, value)")
    for stream, seen in metrics.items():
        db.executemany(
            "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, 0, 'GPU Metrics', ?, ?)",
            [(stream, i, name) for i, name in enumerate(METRICS)],
        )
        db.executemany(
            "INSERT INTO GPU_METRICS VALUES (?, ?, ?, ?, ?)",
            [
                (time + 5, time, stream, METRICS.index(name), value)
                for time, values in seen
                for name, value in values.items()
            ],
        )


def metric_values(sm: float, tensor: float, read: float, write: float) -> dict[str, float]:
    """One sample of all metrics; those that are none of the four counters get 77."""
    return dict.fromkeys(METRICS, 77.0) | {
        "SMs Active [Throughput %]": sm,
        "Tensor Active [Throughput %]": tensor,
        "DRAM Read Bandwidth [Throughput %]": read,
        "DRAM Write Bandwidth [Throughput %]": write,
    }


# --- torch.profiler's trace -----------------------------------------------------------------------


def mark(name: str, start_us: float, end_us: float, tid: int = 7) -> dict:
    """An NVTX range, as the recorder has the profiler note it."""
    return annotation(MARK + name, start_us, end_us, tid)


def annotation(name: str, start_us: float, end_us: float, tid: int = 7) -> dict:
    return _event("user_annotation", name, start_us, end_us, tid)


def launch(correlation: int, at_us: float, tid: int = 7, name: str = "cudaLaunchKernel") -> dict:
    return _event("cuda_runtime", name, at_us, at_us + 4, tid, correlation=correlation)


def operation(
    correlation: int, start_us: float, end_us: float, name="gemm", cat: str = "kernel"
) -> dict:
    event = _event(cat, name, start_us, end_us, tid=13, correlation=correlation)
    return event | {"pid": 0}  # the GPU's number


def _event(cat: str, name: str, start_us: float, end_us: float, tid: int, **args) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": start_us,
            "dur": end_us - start_us, "args": args}  # fmt: skip


def torch_trace():
    """Two training steps with recomputation: 55 operations each, one every 100 us."""
    events, number = [], 0

    def run(name, start_us, count, tid=7):
        nonlocal number
        for _ in range(count):
            number += 1
            events.append(launch(number, start_us + 1, tid=tid))
            events.append(operation(number, 10_000 + 100 * number, 10_080 + 100 * number, name))

    for step in range(2):
        at = 1000 * step
        events += [mark("step", at, at + 900), mark("forward", at + 1, at + 200)]
        events += [mark("layers.0", at + 10, at + 90), mark("layers.1", at + 100, at + 180)]
        run("gemm", at + 20, 10)
        run("gemm", at + 110, 10)
        run("backward gemm", at + 300, 8, tid=8)
        events += [mark("recompute.layers.0", at + 400, at + 500, tid=8)]
        run("gemm", at + 420, 9, tid=8)
        run("backward gemm", at + 600, 12, tid=8)
        events += [mark("optimizer", at + 700, at + 800)]
        run("void fused_adam<int, 4>", at + 710, 6)
    device = {"name": "NVIDIA H200", "sms": 132, "clock_mhz": 1980.0}
    return {"traceEvents": events, RECORDER_KEY: "torch.profiler 2.11.0", DEVICE_KEY: device}
