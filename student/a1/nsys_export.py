"""Reads what `nsys stats` and `nsys export` make of a recording, from nsys 2023.4 to 2026.2.

Two sources. The projected ranges come from the report `nvtx_gpu_proj_trace`, a CSV file that is
also handed in. Everything else (GPU operations, the GPU, its sampled counters) comes from the
SQLite export, whose tables are documented in NVIDIA's user guide, "Exporting to SQLite".
"""

import csv
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import numpy as np

from a1.recording import CounterSamples, Device, ProjectedRange, RecordingError

NS_PER = {"ns": 1, "nsec": 1, "us": 1_000, "usec": 1_000, "µs": 1_000, "ms": 1_000_000,
          "msec": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000}  # fmt: skip

# Column -> what other releases call it. Names are compared without case, blanks and punctuation.
RANGE_COLUMNS = {
    "Name": ("Range", "NVTX Range", "Range Name"),
    "Projected Start": ("Proj Start", "Start"),
    "Projected Duration": ("Proj Duration", "Duration"),
    "NumGPUOps": ("Num GPU Ops", "GPU Ops"),
}
KERNEL_COLUMNS = {"Name": ("Kernel Name",), "Total Time": (), "Instances": ("Count",)}
CALL_COLUMNS = {"Name": ("API Name",), "Total Time": (), "Num Calls": ("Calls", "Count")}
TIMES = {"Projected Start", "Projected Duration", "Total Time"}
COUNTS = {"NumGPUOps", "Instances", "Num Calls"}

# The four counters of the table, under the names that metric sets of different GPUs give them.
METRIC_NAMES = {
    "sm_active": re.compile(r"SMs? Active\b"),
    "tensor_active": re.compile(r"(SM )?Tensor (Pipe )?Active\b"),
    "dram_read": re.compile(r"(DRAM|GPU Memory|VRAM) Read\b"),
    "dram_write": re.compile(r"(DRAM|GPU Memory|VRAM) Write\b"),
}

OPERATION_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
)


# --- the CSV reports ------------------------------------------------------------------------------


def read_ranges(path: Path) -> list[ProjectedRange]:
    """The projected ranges in a nvtx_gpu_proj_trace report, in the file's order.

    A colon before a name stands for NVTX's default domain, and is taken off.
    """
    return [
        ProjectedRange(
            name=row["Name"].removeprefix(":"),
            start_ns=row["Projected Start"],
            end_ns=row["Projected Start"] + row["Projected Duration"],
            gpu_ops=row["NumGPUOps"],
        )
        for row in read_report(path, RANGE_COLUMNS)
    ]


def read_report(path: Path, columns: dict[str, tuple[str, ...]]) -> list[dict]:
    """The rows of a CSV report of `nsys stats`, by the names in `columns`, times in ns.

    A file that is missing, empty or only a header is a report about nothing, and gives no rows:
    nsys writes those when a recording has no such events. Lines before the header are skipped.
    Raises RecordingError for text without a header that has every column, and for a bad row.
    """
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines(keepends=True)
    header = _header(path, lines, columns)
    if header is None:
        return []
    at, place = header
    rows = []
    reader = csv.reader(lines[at + 1 :])
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        try:
            rows.append({name: _value(name, cells[i], unit) for name, (i, unit) in place.items()})
        except (IndexError, ValueError) as wrong:
            raise RecordingError(
                f"{path.name}, line {at + 1 + reader.line_num}: not a row of this report ({wrong})"
            ) from None
    return rows


def _header(
    path: Path, lines: list[str], columns: dict[str, tuple[str, ...]]
) -> tuple[int, dict[str, tuple[int, str]]] | None:
    """Index of the header's line, and for every column its place and unit; None: empty file."""
    best: list[str] = list(columns)
    seen = ""
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        place = _places(next(csv.reader([line])), columns)
        missing = [name for name in columns if name not in place]
        if not missing:
            return i, place
        if len(missing) < len(best):
            best, seen = missing, line.strip()
        if not seen:
            seen = line.strip()
    if not seen:
        return None
    raise RecordingError(
        f"{path.name}: no column {', '.join(best)} in its header ({seen[:200]}); make it again "
        "with a1/nsys.sh, and do not save it from a spreadsheet"
    )


def _places(cells: list[str], columns: dict[str, tuple[str, ...]]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for i, cell in enumerate(cells):
        title, unit = re.fullmatch(r"\s*(.*?)\s*(?:[(\[]([^()\[\]]*)[)\]])?\s*", cell).groups()
        for name, aliases in columns.items():
            if name not in found and _plain(title) in {_plain(n) for n in (name, *aliases)}:
                found[name] = (i, unit or "ns")
    return found


def _plain(title: str) -> str:
    return re.sub(r"[^a-z0-9]", "", title.lower())


def _value(name: str, cell: str, unit: str) -> str | int:
    if name in TIMES:
        if unit.lower() not in NS_PER:
            raise ValueError(f"{name} in an unknown unit, {unit}")
        return round(_number(cell) * NS_PER[unit.lower()])
    if name in COUNTS:
        return int(_number(cell))
    return cell


def _number(cell: str) -> int | float:
    """A number, possibly with thousands separators as nsys prints them: 62,914,755 or 1,517.5."""
    plain = cell.strip()
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    if not re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", plain):
        raise ValueError(f"{cell!r} is not a number")
    return int(plain) if re.fullmatch(r"-?\d+", plain) else float(plain)


# --- the SQLite export ----------------------------------------------------------------------------


class NsysExport:
    """The SQLite export of one recording. Opens it for every question, and never writes to it."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise RecordingError(f"{path} is missing: record again with a1/nsys.sh")
        self.path = path

    def gpu_ops(self) -> list[tuple[int, int]]:
        """Start and end of every kernel, copy and memset, in the order in which they started.

        Raises RecordingError if no kernel ran.
        """
        if not self._rows("CUPTI_ACTIVITY_KIND_KERNEL", "start"):
            raise RecordingError(f"{self.path.name}: no kernel ran in this recording")
        ops = []
        for table in OPERATION_TABLES:
            ops += [(start, end) for start, end in self._rows(table, "start", "end")]
        return sorted(ops)

    def device(self) -> Device | None:
        """The GPU that ran the most kernels."""
        columns = ("id", "name", "smCount", "clockRate", "memoryBandwidth", "l2CacheSize")
        gpus = {row[0]: row[1:] for row in self._rows("TARGET_INFO_GPU", *columns)}
        gpu = gpus.get(self._gpu_id()) or next(iter(gpus.values()), None)
        if gpu is None or not gpu[0]:
            return None
        name, sms, clock_hz, bandwidth, l2_bytes = gpu
        return Device(
            name=name,
            sms=sms,
            clock_mhz=clock_hz / 1e6 if clock_hz else None,
            bandwidth_gbs=bandwidth / 1e9 if bandwidth else None,
            l2_mib=l2_bytes / 2**20 if l2_bytes else None,
        )

    def counters(self) -> CounterSamples | None:
        """The sampled counters of that GPU, those that it has; None if the recording has none."""
        streams = self._metric_tables() or self._generic_events()
        # The low byte of a stream's type is the number of its GPU.
        mine = [key for key in streams if key & 0xFF == self._gpu_id()]
        if not mine and len(streams) == 1:  # one GPU was sampled, whatever its number
            mine = list(streams)
        return _samples(streams[mine[0]]) if mine else None

    def _gpu_id(self) -> int | None:
        """nsys's own number of the GPU that ran the most kernels, which need not be CUDA's."""
        devices = [row[0] for row in self._rows("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId")]
        if not devices:
            return None
        cuda = max(set(devices), key=devices.count)
        gpu_of = dict(self._rows("TARGET_INFO_CUDA_DEVICE", "cudaId", "gpuId"))
        return gpu_of.get(cuda, cuda)

    def _metric_tables(self) -> dict[int, dict[str, list[tuple[int, float]]]]:
        """GPU_METRICS, since 2023: stream -> counter -> samples."""
        wanted: dict[tuple[int, int], str] = {}
        for stream, metric, name in self._rows(
            "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"
        ):
            # A counter may be there in several units; the table shows percentages.
            if (counter := _counter(name)) and ("[" not in name or "%" in name):
                wanted[stream, metric] = counter
        streams: dict = defaultdict(lambda: defaultdict(list))
        for time, stream, metric, value in self._rows(
            "GPU_METRICS", "timestamp", "typeId", "metricId", "value"
        ):
            if counter := wanted.get((stream, metric)):
                streams[stream][counter].append((time, float(value)))
        return streams

    def _generic_events(self) -> dict[int, dict[str, list[tuple[int, float]]]]:
        """GENERIC_EVENTS, where older releases put them: one JSON object for each sample."""
        streams: dict = defaultdict(lambda: defaultdict(list))
        for time, stream, data in self._rows("GENERIC_EVENTS", "timestamp", "typeId", "data"):
            try:
                values = json.loads(data)
            except (TypeError, ValueError):
                continue
            for name, value in values.items() if isinstance(values, dict) else ():
                if counter := _counter(name):
                    streams[stream][counter].append((time, float(value)))
        return streams

    def _rows(self, table: str, *columns: str) -> list[tuple]:
        """The columns of a table; no rows if there is no such table, None for a missing column."""
        try:
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as db:
                there = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
                if not there:
                    return []
                picked = ", ".join(f'"{c}"' if c in there else "NULL" for c in columns)
                return db.execute(f"SELECT {picked} FROM {table}").fetchall()
        except sqlite3.DatabaseError as broken:
            raise RecordingError(f"{self.path.name} is not an export of nsys ({broken})") from None


def _counter(metric: str) -> str | None:
    return next((c for c, pattern in METRIC_NAMES.items() if pattern.match(metric)), None)


def _samples(found: dict[str, Iterable[tuple[int, float]]]) -> CounterSamples | None:
    """Samples on one time axis: those times at which every counter was read.

    A sample is the mean from its time to the next sample's, as NVIDIA's own recipes read it.
    """
    by_time = {counter: dict(samples) for counter, samples in found.items()}
    times = sorted(set.intersection(*(set(samples) for samples in by_time.values())))
    if len(times) < 2:
        return None
    return CounterSamples(
        times_ns=np.array(times),
        percent={c: np.array([of[t] for t in times[:-1]]) for c, of in by_time.items()},
    )
