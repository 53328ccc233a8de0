"""The staff's own results, as the handout and the model answers cite them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median

Row = dict[str, float | str | None]


class MissingResult(Exception):
    """A file, a row or a column that a text cites is not there; the message says which."""


def _value(text: str) -> float | str | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        return text


class Results:
    """The files of a results folder, read when a text first asks for them.

    Numbers are floats in the columns' own units; an empty cell is None.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = cache(self._rows)

    def _rows(self, name: str) -> list[Row]:
        """Every row of `name`.csv."""
        path = self.folder / f"{name}.csv"
        if not path.is_file():
            raise MissingResult(f"{path} is missing: it comes from running the experiments")
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(file)]

    def row(self, name: str, **key: float | str) -> Row:
        """The one row of `name`.csv with these cells."""
        found = [r for r in self.rows(name) if all(r.get(k) == v for k, v in key.items())]
        if len(found) != 1:
            raise MissingResult(f"{name}.csv has {len(found)} rows with {key}, not one")
        return found[0]

    def note(self, name: str) -> dict:
        """What the sidecar of `name`.csv says about its latest run."""
        path = self.folder / f"{name}.csv.json"
        if not path.is_file():
            raise MissingResult(f"{path} is missing")
        return json.loads(path.read_text(encoding="utf-8"))["runs"][-1]

    def transcript(self, name: str) -> str | None:
        """What a run printed, its command first; None if it has not been recorded."""
        path = self.folder / "transcripts" / f"{name}.txt"
        return path.read_text(encoding="utf-8").rstrip() if path.is_file() else None

    # --- single operations ---

    def gemm(self, shape: str, m: int) -> Row:
        return self.row("gemm", shape=shape, m=m)

    def regime(self, begins: str) -> Row:
        """The row of regimes.csv whose workload begins so."""
        found = [r for r in self.rows("regimes") if str(r["workload"]).startswith(begins)]
        if len(found) != 1:
            raise MissingResult(f"regimes.csv has {len(found)} workloads that begin with {begins}")
        return found[0]

    def plateau_gbs(self, op: str) -> float:
        """Bandwidth of an operation of ops.csv on its largest tensor."""
        return max(self._of_op(op), key=lambda r: r["bytes_moved"])["gbs"]

    def overhead_ms(self, below_mb: float = 20) -> float:
        """Median time of the operations that move less than so many MB."""
        return median(r["ms"] for r in self.rows("ops") if r["bytes_moved"] < below_mb * 1e6)

    def _of_op(self, op: str) -> list[Row]:
        return [r for r in self.rows("ops") if r["op"] == op]

    def sustained(self, begin_s: float, end_s: float, column: str = "tflops") -> float:
        """Median of a column of gemm_sustained.csv between two moments."""
        rows = [r for r in self.rows("gemm_sustained") if begin_s <= r["seconds"] <= end_s]
        if not rows:
            raise MissingResult(f"gemm_sustained.csv: no row from {begin_s} s to {end_s} s")
        return median(r[column] for r in rows)

    def settled_s(self, below_tflops: float) -> float:
        """When the sustained GEMM first ran slower than that."""
        for r in self.rows("gemm_sustained"):
            if r["tflops"] < below_tflops:
                return r["seconds"]
        raise MissingResult(f"gemm_sustained.csv never falls below {below_tflops:.0f} TFLOP/s")

    # --- training steps ---

    def micro(self, size: int, recompute: bool) -> Row:
        """The row of micro_batches.csv for a micro batch size."""
        return self.row("micro_batches", micro_batch_size=size, recompute=_flag(recompute))

    def stage(self, name: str, recompute: bool = False) -> Row:
        """The row of stages.csv, or of stages_rc.csv, for a stage; "step" is the whole step."""
        return self.row("stages_rc" if recompute else "stages", stage=name)

    def layer_ms(self, column: str, recompute: bool = False) -> float:
        """Mean over the layers of a column of stages.csv or stages_rc.csv."""
        rows = self.rows("stages_rc" if recompute else "stages")
        times = [r[column] for r in rows if str(r["stage"]).startswith("layers.")]
        return sum(times) / len(times)

    def sweep(self, layers: int, size: int, seqlen: int, recompute: bool = False) -> Row:
        """The latest row of sweep.csv for a configuration."""
        key = (layers, size, seqlen, _flag(recompute))
        for r in reversed(self.rows("sweep")):
            if (r["layers"], r["micro_batch_size"], r["seqlen"], r["recompute"]) == key:
                return r
        raise MissingResult(f"sweep.csv has no row for {key}")

    # --- recordings ---

    def range(self, recording: str, name: str) -> Row:
        return self.row(f"{recording}_ranges", range=name)

    def steps(self, recording: str) -> int:
        """How many steps were recorded."""
        names = (str(r["Name"]).lstrip(":") for r in self.rows(f"{recording}_nvtx_gpu_proj_trace"))
        return sum(name == "step" for name in names)

    def kernel_ms(self, recording: str, pattern: str = "") -> float:
        """GPU time per step of the kernels whose name matches; of all, without a pattern."""
        return self._kernels(recording, pattern, lambda r: r["Total Time (ns)"] / 1e6)

    def kernel_count(self, recording: str, pattern: str = "") -> float:
        """How many of them run per step."""
        return self._kernels(recording, pattern, lambda r: r["Instances"])

    def _kernels(self, recording: str, pattern: str, what: Callable[[Row], float]) -> float:
        rows = self.rows(f"{recording}_cuda_gpu_kern_sum")
        matching = [r for r in rows if re.search(pattern, str(r["Name"]))]
        return sum(map(what, matching)) / self.steps(recording)

    def calls(self, recording: str, call: str, column: str = "Num Calls") -> float:
        """A column of cuda_api_sum for a call, per step; 0 if the call was never made."""
        rows = [
            r for r in self.rows(f"{recording}_cuda_api_sum") if str(r["Name"]).startswith(call)
        ]
        return sum(r[column] for r in rows) / self.steps(recording)


def _flag(value: bool) -> str:
    return "yes" if value else "no"
