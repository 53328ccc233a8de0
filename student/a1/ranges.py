"""Summarizes a recording of a few steps: the GPU time of every NVTX range, folded over the layers.

    python a1/ranges.py NAME             the table of one recording, and results/a1/NAME_ranges.csv
    python a1/ranges.py --compare A B    two recordings side by side: operations and GPU times

`a1/nsys.sh` and `a1/profile_step.py --recorder torch` run the first by themselves. The second
reads what they wrote.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # the folder that holds olmoe/ and a1/

from a1.nsys_export import RANGE_COLUMNS, NsysExport, read_ranges, read_report
from a1.recording import COUNTERS, ProjectedRange, Recording, RecordingError
from shared.assignment import RECORDING_FILES

BACKWARD = "(backward)"  # the row that is not a range
RECOMPUTE = "recompute."  # what olmoe/prof.py puts before ranges that open in a backward pass
LARGE_MS = 5  # GPU times of smaller ranges depend on the host too much to compare two recorders

Span = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """All ranges of one folded name, per step."""

    name: str
    gpu_ms: float
    instances: float
    gpu_ops: float
    counters: dict[str, float | None] = field(default_factory=dict)  # counter -> percent


# --- what the recording says ----------------------------------------------------------------------


def fold(name: str) -> str:
    """`layers.3.attn` -> `layers.*.attn`: what differs only in a module's number is added up."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def summarize(recording: Recording) -> list[Row]:
    """One row per folded name, the longest GPU time first, and `(backward)` if a step has one.

    GPU time is the sum of the projected durations over the number of steps. Ranges nest, so rows
    overlap. Counters are means over the projections, with whatever idle time there is between the
    range's kernels: that is how a GPU that waits for launches shows in SM activity.

    Raises RecordingError for a recording without a range named `step`.
    """
    steps = [r for r in recording.ranges if r.name == "step"]
    if not steps:
        raise RecordingError(
            "no range is called step, so steps cannot be counted: was this recorded with "
            "a1/profile_step.py?"
        )
    groups: dict[str, list[ProjectedRange]] = {}
    for r in recording.ranges:
        groups.setdefault(fold(r.name), []).append(r)

    rows = [
        _row(name, [r.span for r in found], len(found), sum(r.gpu_ops for r in found), recording)
        for name, found in groups.items()
    ]
    if "optimizer" in groups:
        left = backward_spans(recording.ranges)
        ops = operations_started_in(left, recording.gpu_ops)
        rows.append(_row(BACKWARD, left, len(steps), ops, recording))
    rows = [_per_step(row, len(steps)) for row in rows]
    return sorted(rows, key=lambda row: -row.gpu_ms)  # stable: an outer range before an inner one


def backward_spans(ranges: Iterable[ProjectedRange]) -> list[Span]:
    """The parts of every step outside its forward, its optimizer and its recomputations.

    A step's span goes from its first GPU operation to the last that its own thread launched, which
    is the optimizer's. The kernels of the backward pass lie in between, although another thread
    launched them and no range holds them. What is left of the span once the projections of
    `forward`, of `optimizer` and of every `recompute.` range are taken out is therefore the
    backward pass without recomputation, together with the GPU's idle time in it.
    """
    ranges = list(ranges)
    accounted = merge(
        r.span for r in ranges if r.name in ("forward", "optimizer") or r.name.startswith(RECOMPUTE)
    )
    return [
        left
        for step in merge(r.span for r in ranges if r.name == "step")
        for left in subtract(step, accounted)
    ]


def merge(spans: Iterable[Span]) -> list[Span]:
    """The union of the spans, as disjoint spans in order."""
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def subtract(span: Span, holes: list[Span]) -> list[Span]:
    """What is left of `span` without `holes`, which are disjoint and in order."""
    at, end = span
    left = []
    for hole_start, hole_end in holes:
        if hole_end <= at or hole_start >= end:
            continue
        if hole_start > at:
            left.append((at, hole_start))
        at = hole_end
    if at < end:
        left.append((at, end))
    return left


def operations_started_in(spans: list[Span], operations: Iterable[Span]) -> int:
    """How many operations started in one of the spans (`end` is outside: the next one's start)."""
    return sum(any(start <= op < end for start, end in spans) for op, _ in operations)


def _row(name: str, spans: list[Span], instances: int, gpu_ops: int, recording: Recording) -> Row:
    """Totals over the recording."""
    counters = recording.counters.means(spans) if recording.counters and spans else {}
    return Row(name, sum(end - start for start, end in spans) / 1e6, instances, gpu_ops, counters)


def _per_step(row: Row, steps: int) -> Row:
    return Row(
        row.name, row.gpu_ms / steps, row.instances / steps, row.gpu_ops / steps, row.counters
    )


# --- where recordings lie -------------------------------------------------------------------------


def load(name: str, results: Path, reports: Path) -> Recording:
    """The recording called `name`, by whichever recorder made it.

    Raises RecordingError if it is missing, holds no kernel, or holds no range.
    """
    trace_csv = results / f"{name}_nvtx_gpu_proj_trace.csv"
    if not trace_csv.is_file():
        raise RecordingError(f"{trace_csv} is missing: record it with a1/nsys.sh {name} ...")
    if recorder := recorded_by(trace_csv):
        from a1 import torch_recorder

        trace = torch_recorder.Trace.read(reports / f"{name}{torch_recorder.SUFFIX}")
        gpu_ops, device, counters = trace.gpu_ops(), trace.device, None
    else:
        export = NsysExport(reports / f"{name}.sqlite")
        recorder, gpu_ops = "nsys", export.gpu_ops()
        device, counters = export.device(), export.counters()
    ranges = read_ranges(trace_csv)
    if not ranges:
        raise RecordingError(f"{trace_csv.name}: no NVTX range launched anything in this recording")
    # A projection starts where an operation does, unless the two files are of different recordings.
    starts = {start for start, _ in gpu_ops}
    if sum(r.start_ns in starts for r in ranges) * 2 < len(ranges):
        raise RecordingError(
            f"{trace_csv.name} and the recording in {reports} are not of the same run: record again"
        )
    return Recording(recorder, ranges, gpu_ops, device, counters)


def recorded_by(trace_csv: Path) -> str | None:
    """Who wrote the report, if it says so in a column `Recorder`; None: nsys."""
    try:
        rows = read_report(trace_csv, RANGE_COLUMNS | {"Recorder": ()})
    except RecordingError:
        return None
    return rows[0]["Recorder"] if rows else None


# --- printing and writing -------------------------------------------------------------------------


def table(rows: list[Row], with_counters: bool) -> str:
    """The summary as people read it. Counters are percentages of what the GPU can do."""
    width = max(34, *(len(row.name) for row in rows))
    head = f"{'range':<{width}}{'GPU ms/step':>13}{'instances':>11}{'GPU ops':>10}"
    lines = [head + "".join(f"{c.replace('_', ' '):>15}" for c in COUNTERS if with_counters)]
    for row in rows:
        line = f"{row.name:<{width}}{row.gpu_ms:>13.2f}{row.instances:>11.4g}{row.gpu_ops:>10.1f}"
        if with_counters:
            means = [row.counters.get(c) for c in COUNTERS]
            line += "".join(f"{'' if m is None else f'{m:.1f}%':>15}" for m in means)
        lines.append(line)
    return "\n".join(lines)


def write_csv(name: str, rows: list[Row], path: Path) -> Path:
    """NAME_ranges.csv, as shared/artifacts.toml declares it."""
    from shared import artifacts

    return artifacts.write(
        f"{name}_ranges",
        [
            {
                "range": row.name,
                "gpu_ms_per_step": row.gpu_ms,
                "instances": row.instances,
                "gpu_ops": row.gpu_ops,
                **{c: row.counters.get(c) for c in COUNTERS},
            }
            for row in rows
        ],
        path,
    )


def summarize_recording(name: str, results: Path, reports: Path) -> Path:
    """Print the table of a recording and write NAME_ranges.csv, whose path it returns."""
    recording = load(name, results, reports)
    rows = summarize(recording)
    if recording.device:
        print(recording.device)
    print(table(rows, with_counters=recording.counters is not None))
    if recording.counters is None:
        print("(no GPU metrics in this recording)")
    if recording.recorder != "nsys":
        print(f"(recorded with {recording.recorder})")
    path = write_csv(name, rows, results / f"{name}_ranges.csv")
    write_sidecars(name, results, reports)
    return path


def write_sidecars(name: str, results: Path, reports: Path) -> None:
    """Note beside each of the recording's CSV files which run made it, as profile_step.py said.

    A summary that is made again later is of the same run, so its sidecars stay as they are.
    """
    from shared import provenance

    try:
        run = json.loads((reports / f"{name}.run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    for form in RECORDING_FILES:
        path = results / form.format(name)
        try:
            noted = [earlier.get("run") for earlier in provenance.read_sidecar(path)]
        except ValueError:  # an unreadable sidecar is replaced
            noted = []
        if path.is_file() and noted != [run["run"]]:
            provenance.write_sidecar(path, run)


# --- two recordings -------------------------------------------------------------------------------


def compare(a: Path, b: Path) -> str:
    """Two NAME_ranges.csv side by side, the rows of the first in its order.

    Both are per step, so recordings of different numbers of steps can be compared.
    """
    left, right = _read_rows(a), _read_rows(b)
    width = max(34, *(len(name) for name in left | right))
    label_a, label_b = (p.name.removesuffix("_ranges.csv") for p in (a, b))
    lines = [
        f"A: {label_a}   B: {label_b}",
        f"{'range':<{width}}{'ops A':>10}{'ops B':>10}{'':>4}"
        f"{'ms A':>11}{'ms B':>11}{'B/A - 1':>10}",
    ]
    both = [name for name in left if name in right]
    for name in both:
        (ms_a, ops_a), (ms_b, ops_b) = left[name], right[name]
        ratio = f"{ms_b / ms_a - 1:+.1%}" if ms_a else ""
        lines.append(
            f"{name:<{width}}{ops_a:>10.1f}{ops_b:>10.1f}{'' if ops_a == ops_b else ' !':>4}"
            f"{ms_a:>11.3f}{ms_b:>11.3f}{ratio:>10}"
        )
    for label, mine, other in ((label_a, left, right), (label_b, right, left)):
        if only := [name for name in mine if name not in other]:
            lines.append(f"only in {label}: {', '.join(only)}")

    same_ops = sum(left[name][1] == right[name][1] for name in both)
    lines.append(f"operation counts: equal in {same_ops} of {len(both)} ranges")
    large = {n: right[n][0] / left[n][0] - 1 for n in both if left[n][0] > LARGE_MS}
    if large:
        worst = max(large, key=lambda name: abs(large[name]))
        lines.append(
            f"GPU times of the {len(large)} ranges above {LARGE_MS} ms: at most "
            f"{abs(large[worst]):.1%} apart ({worst})"
        )
    else:
        lines.append(f"no range is above {LARGE_MS} ms")
    return "\n".join(lines)


def _read_rows(path: Path) -> dict[str, tuple[float, float]]:
    """Range -> GPU ms per step, GPU operations per step."""
    if not path.is_file():
        raise RecordingError(f"{path} is missing: record it first")
    with path.open(encoding="utf-8-sig", newline="") as source:
        rows = list(csv.DictReader(source))
    try:
        return {r["range"]: (float(r["gpu_ms_per_step"]), float(r["gpu_ops"])) for r in rows}
    except (KeyError, TypeError, ValueError) as wrong:
        raise RecordingError(f"{path} is not a table of ranges ({wrong})") from None


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Summarize a recording by NVTX range, or compare two.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("name", nargs="?", help="the recording, as nsys.sh was told to call it")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two recordings' names")
    parser.add_argument("--results", type=Path, default=Path("results/a1"), help="the CSV files")
    parser.add_argument("--reports", type=Path, default=Path("reports/a1"), help="the recordings")
    parser.add_argument(
        "--staged", action="store_true", help="do not say what was written (nsys.sh will move it)"
    )
    chosen = parser.parse_args(arguments)
    if (chosen.name is None) == (chosen.compare is None):
        parser.error("give either the name of one recording or --compare A B")
    try:
        if chosen.compare:
            a, b = (chosen.results / f"{name}_ranges.csv" for name in chosen.compare)
            print(compare(a, b))
        else:
            path = summarize_recording(chosen.name, chosen.results, chosen.reports)
            if not chosen.staged:
                print(f"wrote {path}")
    except RecordingError as wrong:
        sys.exit(f"ranges.py: {wrong}")
    except OSError as refused:
        sys.exit(f"ranges.py: cannot read or write {refused.filename}: {refused.strerror}")


if __name__ == "__main__":
    main()
