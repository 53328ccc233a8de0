"""The experiments' files as the rules for the staff read them.

Whatever is wrong with a file is said by the rules that carry points.  Here a file that is missing,
broken or far larger than an honest one is passed over.
"""

from __future__ import annotations

import csv
import re
from datetime import datetime
from math import lgamma, log, log1p
from pathlib import Path

import numpy as np
import pandas as pd

from shared.artifacts import OUT_OF_MEMORY, table, tables
from shared.provenance import sidecar_path

from ..rules.experiment import Results

# Reading takes 5 ms per 10,000 bytes of a table.  An honest sweep has 120 bytes a row, an honest
# trace of naive experts 520,000 bytes in all.
MAX_BYTES = 60_000
MAX_TRACE_BYTES = 600_000
MAX_RUNS = 100
KINDS = ("forward_ms", "backward_ms", "recompute_ms", "optimizer_ms")  # of a step
CONFIGURATION = ["layers", "micro_batch_size", "seqlen", "recompute"]


def measured(results: Results, name: str) -> pd.DataFrame | None:
    """Artifact `name` without the rows that ran out of memory; None if there is nothing to read."""
    path = results.folder / table(name).file
    if not path.is_file() or path.stat().st_size > MAX_BYTES or not results.has(name):
        return None
    frame = results.frame(name)
    if "status" in frame:
        frame = frame[frame["status"] != OUT_OF_MEMORY]
    return None if frame.empty else frame


def sweep(results: Results) -> pd.DataFrame | None:
    """sweep.csv with `tokens`, and `stages_ms`: what its stages and the optimizer add up to."""
    frame = measured(results, "sweep")
    if frame is None:
        return None
    return frame.assign(
        tokens=frame["micro_batch_size"] * frame["seqlen"],
        stages_ms=frame[list(KINDS)].sum(axis=1),
    )


def whole_step(results: Results, name: str) -> pd.Series | None:
    """The row `step` of stages.csv or stages_rc.csv."""
    frame = measured(results, name)
    rows = frame[frame["stage"] == "step"] if frame is not None else []
    return rows.iloc[0] if len(rows) else None


def gpu_ms(results: Results, recording: str) -> dict[str, float]:
    """Range -> GPU ms per step, from a recording's summary."""
    frame = measured(results, f"{recording}_ranges")
    if frame is None:
        return {}
    return dict(zip(frame["range"], frame["gpu_ms_per_step"], strict=True))


def trace_ms(path: Path) -> list[tuple[str, float]]:
    """(name, projected ms) of every range of a recording's trace, read as quickly as can be.

    Empty for a file that is missing, too large, or not such a trace.
    """
    if not path.is_file() or path.stat().st_size > MAX_TRACE_BYTES:
        return []
    wanted = table(path.name)
    names = {wanted["Name"].name, *wanted["Name"].aliases}
    durations = ("Projected Duration (ns)", *wanted["Projected Duration (ns)"].aliases)
    found, at = [], None
    with open(path, encoding="utf-8-sig", newline="", errors="replace") as source:
        for cells in csv.reader(source):
            if at is None:
                duration = next((d for d in durations if d in cells), None)
                name = next((n for n in cells if n in names), None)
                at = (cells.index(name), cells.index(duration)) if name and duration else None
            elif len(cells) > max(at):
                found.append((cells[at[0]].removeprefix(":"), float(cells[at[1]]) / 1e6))
    return found


def folded(name: str) -> str:
    """`layers.3.attn` -> `layers.*.attn`, as a recording's summary adds ranges up."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name)


def runs(results: Results) -> dict[str, list[dict]]:
    """File -> its sidecar's runs, for every artifact that is there; [] without a sidecar."""
    there = [t for t in tables().values() if (results.folder / t.file).is_file()]
    return {t.file: runs_of(results, t.name) for t in there}


def runs_of(results: Results, name: str) -> list[dict]:
    """The first runs of an artifact's sidecar; [] without one."""
    path = sidecar_path(results.folder / table(name).file)
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        return []
    return results.runs(name)[:MAX_RUNS]


def gpu_names(results: Results, name: str) -> set[str]:
    """The models of GPU that made an artifact, as the sidecar has them."""
    return {run["gpu"] for run in runs_of(results, name) if isinstance(run.get("gpu"), str)}


def at_least(k: int, n: int, p: float) -> float:
    """Probability of `k` or more of `n` where each happens with probability `p`."""
    if k <= 0:
        return 1.0
    i = np.arange(k, n + 1)
    ways = np.array([lgamma(n + 1) - lgamma(j + 1) - lgamma(n - j + 1) for j in i])
    return float(min(1.0, np.exp(ways + i * log(p) + (n - i) * log1p(-p)).sum()))


def moment(text: object) -> datetime | None:
    """2027-03-01T12:00:00Z as a datetime; None for anything else."""
    try:
        return datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None


def resolution(values: np.ndarray) -> np.ndarray:
    """The step between neighbouring numbers as our scripts write them: six significant digits."""
    return 10.0 ** (np.floor(np.log10(values)) - 5)


def six_digits(values: np.ndarray) -> np.ndarray:
    """The values as our scripts write them."""
    return np.array([float(f"{value:.6g}") for value in values])
