"""A folder of results that can be changed and stays consistent with itself."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from shared.artifacts import read, recordings, write
from shared.provenance import sidecar_path

from ...staff_rules.reading import folded

KINDS = ("forward_ms", "backward_ms", "recompute_ms", "optimizer_ms")
TIMES = {  # artifact -> the columns that were measured in ms
    "gemm": ["ms"], "ops": ["ms"], "regimes": ["ms"], "micro_batches": ["step_ms"],
    "stages": KINDS[:3], "stages_rc": KINDS[:3], "sweep": ["step_ms", *KINDS],
}  # fmt: skip
# What the rules read; routing, kernels and API calls are left where they are.
COPIED = [f"{r}_{kind}" for r in recordings() for kind in ("ranges", "nvtx_gpu_proj_trace")]


@dataclass
class Folder:
    """Results under `path`: read, changed, written back as the experiments write them."""

    path: Path
    draw: np.random.Generator

    def has(self, name: str) -> bool:
        return (self.path / f"{name}.csv").is_file()

    def frame(self, name: str) -> pd.DataFrame:
        return read(self.path / f"{name}.csv", name)

    def write(self, name: str, frame: pd.DataFrame, derive: bool = True) -> None:
        """Write the table.

        derive: in rows with a new time, columns that follow from it are computed first.  The other
        rows stay as they are: derived from the six digits in the file they would give themselves
        away.
        """
        if derive:
            before, after = self.frame(name), derived(name, frame)
            times = list(TIMES.get(name, []))
            same = (before[times] == after[times]).all(axis=1)
            same &= name not in ("stages", "stages_rc") or same.all()
            frame = after.where(~same, frame) if not same.all() else frame
        write(name, frame, self.path / f"{name}.csv", append=False)

    def change(self, name: str, how: Callable[[pd.DataFrame], pd.DataFrame | None]) -> None:
        """Apply `how` to a table that is there."""
        if self.has(name):
            frame = self.frame(name)
            changed = how(frame)
            self.write(name, frame if changed is None else changed)

    def scale(self, factor: Callable[[np.ndarray], np.ndarray | float], names=tuple(TIMES)) -> None:
        """Multiply every measured time of these tables; `factor` gets the times in ms."""
        for name in names:
            if not self.has(name):
                continue
            frame = self.frame(name)
            for column in TIMES[name]:
                ms = frame[column].to_numpy(float)
                frame[column] = ms * factor(ms)
            self.write(name, frame)

    def scale_sustained(self, factor: np.ndarray | float) -> None:
        """Every group of the sustained run takes `factor` times as long."""
        if self.has("gemm_sustained"):
            frame = self.frame("gemm_sustained")
            took_s = np.diff(frame["seconds"], prepend=0.0)
            work = np.median(took_s * frame["tflops"])
            took_s = work / frame["tflops"].to_numpy(float) * factor
            frame["seconds"], frame["tflops"] = np.cumsum(took_s), work / took_s
            self.write("gemm_sustained", frame)

    def scale_recordings(self, factor: Callable[[], float]) -> None:
        """Every recording takes `factor()` times as long, in its trace and in its summary."""
        for recording in recordings():
            by, seen, steps = factor(), Counter(), 1
            trace = self.path / f"{recording}_nvtx_gpu_proj_trace.csv"
            if trace.is_file():
                with open(trace, encoding="utf-8", newline="") as source:
                    header, *rows = csv.reader(source)
                at = header.index("Projected Duration (ns)")
                for row in rows:
                    row[at] = str(round(int(row[at]) * by))
                    seen[folded(row[0].removeprefix(":"))] += int(row[at])
                steps = sum(row[0].removeprefix(":") == "step" for row in rows)
                with open(trace, "w", encoding="utf-8", newline="") as out:
                    csv.writer(out, lineterminator="\n").writerows([header, *rows])

            def change(frame: pd.DataFrame, by=by, seen=seen, steps=steps) -> pd.DataFrame:
                scaled = frame["gpu_ms_per_step"] * by
                exact = frame["range"].map(lambda r: seen[r] / steps / 1e6 if r in seen else None)
                return frame.assign(gpu_ms_per_step=exact.astype(float).fillna(scaled))

            self.change(f"{recording}_ranges", change)

    def rename_runs(self) -> None:
        """Other runs, an hour earlier or later: names, times and machine in every sidecar."""
        names: dict[str, str] = {}
        draw = random.Random(int(self.draw.integers(2**31)))
        uuid, day, hour = (
            f"GPU-{draw.getrandbits(128):032x}",
            draw.randrange(1, 29),
            draw.randrange(10, 24),
        )
        for path in self.path.glob("*.csv.json"):
            note = json.loads(path.read_text())
            for run in note["runs"]:
                moved = {k: f"2027-02-{day:02}T{hour}{run[k][13:]}" for k in ("started", "ended")}
                stamp = moved["started"].replace("-", "").replace(":", "")
                name = names.setdefault(run["run"], f"{stamp}-{draw.getrandbits(16):04x}")
                run.update(moved, run=name, gpu_uuid=uuid)
            path.write_text(json.dumps(note, indent=1) + "\n")
        if self.has("sweep"):
            frame = self.frame("sweep")
            frame["run"] = frame["run"].map(lambda r: names.get(r, r))
            self.write("sweep", frame, derive=False)


def copy(source: Path, target: Path, seed: int) -> Folder:
    """A copy of the results at `source`, without what no rule reads, to be changed."""
    target.mkdir(parents=True)
    for name in [*TIMES, "gemm_sustained", *COPIED]:
        path = source / f"{name}.csv"
        for one in (path, sidecar_path(path)):
            if one.is_file():
                shutil.copyfile(one, target / one.name)
    return Folder(target, np.random.default_rng(seed))


def derived(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with every column that follows from others computed from the unrounded ones."""
    frame = frame.copy()
    if name == "gemm":
        m, k, n = (frame[c] for c in "mkn")
        frame["tflops"] = 2 * m * k * n / frame["ms"] / 1e9
        frame["gbs"] = 2 * (m * k + k * n + m * n) / frame["ms"] / 1e6
    elif name == "ops":
        frame["gbs"] = frame["bytes_moved"] / frame["ms"] / 1e6
    elif name == "micro_batches":
        tokens = frame["global_batch_size"] * frame["seqlen"]
        frame["tokens_per_s"] = tokens / frame["step_ms"] * 1e3
    elif name == "sweep":
        _throughput(frame, frame["micro_batch_size"] * frame["seqlen"])
    elif name in ("stages", "stages_rc"):
        step = frame.index[frame["stage"] == "step"]
        for kind in KINDS[:3]:
            frame.loc[step, kind] = frame.loc[frame["stage"] != "step", kind].sum()
        frame.loc[step, "step_ms"] = frame.loc[step, list(KINDS)].sum(axis=1)
        _throughput(frame, frame["micro_batch_size"] * frame["seqlen"])
    return frame


def _throughput(frame: pd.DataFrame, tokens: pd.Series) -> None:
    """tokens/s, and the MFU that goes with it."""
    now = tokens / frame["step_ms"] * 1e3
    frame["mfu_percent"] *= now / frame["tokens_per_s"]
    frame["tokens_per_s"] = now
