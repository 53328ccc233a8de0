"""One hand-in's numbers beside those of others: students of the class, or the staff.

Only here can a copy be noticed: by itself it is as honest as its original.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from shared.artifacts import table

from ..rules.experiment import Results
from .agreement import may_differ
from .note import Note
from .reading import CONFIGURATION, KINDS, gpu_names, measured, runs_of

MEASURED = {  # artifact -> (its keys, the columns that carry noise)
    "gemm": (["shape", "m"], ["ms"]),
    "ops": (["op", "tensor_bytes"], ["ms"]),
    "gemm_sustained": ([], ["seconds", "tflops"]),
    "micro_batches": (["micro_batch_size", "recompute"], ["step_ms"]),
    "stages": (["stage"], KINDS[:3]),
    "stages_rc": (["stage"], KINDS[:3]),
    "sweep": (CONFIGURATION, ["step_ms", *KINDS]),
}
LAUNCH_MS = 0.05  # GEMMs and operations below are launch-bound on the GPUs we know


def same_as(results: Results, others: Mapping[str, Results]) -> list[Note]:
    """Two people do not measure the same numbers.

    `others`: name -> results of other students, of earlier terms, or of the staff.  Per file, the
    cells that both have, without those that are equal for everybody (memory, counts, counters) and
    without launch-bound GEMMs, which the timer's tick makes coincide.  Of two honest sets one cell
    in fifty is the same; a quarter of at least eight is noted, and so is a run (by its name in the
    sidecar) that is in both.

    A copy whose numbers were stirred a little is found by its launch-bound GEMMs and operations.
    They measure the host, and every run has a few that are 10 to 50% slower than their neighbours.
    Where nine in ten are within 2.5% of somebody else's, the two are one measurement.

    Honest cause: two students who ran the experiments together and each handed them in.
    """
    found = []
    mine, launches = {n: _cells(results, n) for n in MEASURED}, _launches(results)
    for name, other in others.items():
        files, same, of = [], 0, 0
        for artifact, cells in mine.items():
            both = pd.concat([cells, _cells(other, artifact)], axis=1, join="inner").dropna()
            equal = int((both.iloc[:, 0] == both.iloc[:, 1]).sum())
            if len(both) >= 8 and equal >= 0.25 * len(both):
                files, same, of = [*files, table(artifact).file], same + equal, of + len(both)
        shared_runs = _run_names(results) & _run_names(other)
        if files or shared_runs:
            figures = {"same": same, "of": of, "runs in both": len(shared_runs)}
            what = f"the same numbers as {name}"
            found.append(Note("same_as", ", ".join(files) or "sidecars", what, figures))
            continue
        both = pd.concat([launches, _launches(other)], axis=1, join="inner").dropna()
        if len(both) >= 20:
            off = np.quantile(np.abs(np.log(both.iloc[:, 0] / both.iloc[:, 1])), 0.9)
            if off < 0.025:
                figures = {"launch-bound": len(both), "nine in ten within": float(off)}
                what = f"launch-bound times are those of {name}, stirred a little"
                found.append(Note("same_as", "gemm.csv, ops.csv", what, figures))
    return found


def _cells(results: Results, artifact: str) -> pd.Series:
    """(key, column) -> value, for the cells that tell one measurement from another."""
    frame = measured(results, artifact)
    if frame is None:
        return pd.Series(dtype=float)
    keys, columns = MEASURED[artifact]
    frame = frame.assign(row=range(len(frame))) if not keys else frame
    frame = frame.drop_duplicates(keys or ["row"]).set_index(keys or ["row"])
    cells = frame[list(columns)].stack()
    return cells[cells >= LAUNCH_MS]


def _launches(results: Results) -> pd.Series:
    found = []
    for artifact in ("gemm", "ops"):
        frame = measured(results, artifact)
        if frame is not None:
            keys = MEASURED[artifact][0]
            found.append(frame.drop_duplicates(keys).set_index(keys)["ms"].rename_axis(["a", "b"]))
    cells = pd.concat(found) if found else pd.Series(dtype=float)
    return cells[cells < LAUNCH_MS]


def _run_names(results: Results) -> set[str]:
    return {
        r["run"]
        for name in MEASURED
        for r in runs_of(results, name)
        if isinstance(r.get("run"), str)
    }


def unlike_staff(results: Results, staff: Results) -> list[Note]:
    """On the same model of GPU, large operations take the same time for everybody.

    GEMMs and operations of more than 0.2 ms, and steps of more than 4096 tokens without
    recomputation, against the staff's results.  Two occasions differ by 1.4% in the median; a
    median 12% off is noted, and three rows 35% off (a power cap slows all, not three).  So is peak
    memory more than 3% off, which has no noise.

    Honest cause: a GPU with a lower power limit, shared, or hot; a model whose code was changed.
    """
    if not gpu_names(results, "gemm") & gpu_names(staff, "gemm"):
        return []
    off = []
    for artifact in ("gemm", "ops", "sweep"):
        frames = [measured(r, artifact) for r in (results, staff)]
        if None in [None if f is None else 0 for f in frames]:
            continue
        keys, column = MEASURED[artifact][0], MEASURED[artifact][1][0]
        both = frames[0].merge(frames[1], on=keys, suffixes=("", "_staff"))
        large = both[f"{column}_staff"] > 0.2
        if artifact == "sweep":
            large = (both["micro_batch_size"] * both["seqlen"] > 4096) & (both["recompute"] == "no")
            memory = both["recompute"] == "no"
            peaks = np.abs(np.log(both["peak_gib"] / both["peak_gib_staff"]))[memory]
            if (peaks > 0.03).any():
                figures = {"rows": int((peaks > 0.03).sum()), "off by": float(peaks.max())}
                what = "peak memory is not the staff's; memory has no noise"
                return [Note("unlike_staff", "sweep.csv", what, figures)]
        off.append(np.log(both[column] / both[f"{column}_staff"])[large])
        if len(off[-1]) >= 5 and (
            abs(off[-1].median()) > may_differ(8192) or (off[-1].abs() > 0.3).sum() >= 3
        ):
            figures = {"median": float(off[-1].median()), "worst": float(off[-1].abs().max())}
            figures["rows"] = len(off[-1])
            what = "large operations take other times than the staff's on the same GPU (log ratio)"
            return [Note("unlike_staff", table(artifact).file, what, figures)]
    return []
