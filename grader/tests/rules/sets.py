"""Results to judge: honest sets as they were measured, and variations of one that stay honest."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from ...proof.mistakes.mistake import edited
from ...proof.mistakes.tally import EXPERIMENTS, findings, has_tables

HONEST = sorted(p for p in (Path(__file__).parent / "honest").iterdir() if p.is_dir())
CASES = [(s, key) for s in HONEST for key in EXPERIMENTS if has_tables(key, s)]
COMPLETE = next(s for s in HONEST if all(has_tables(key, s) for key in EXPERIMENTS))

KINDS = ["forward_ms", "backward_ms", "recompute_ms"]
COUNTERS = ["kernel_running_percent", "memory_busy_percent", "clock_mhz", "power_w"]
STEP_TABLES = ("micro_batches.csv", "stages.csv", "stages_rc.csv", "sweep.csv")
TABLES = ("gemm.csv", "gemm_sustained.csv", "regimes.csv", "ops.csv", *STEP_TABLES)


def lost(folder: Path, keys=EXPERIMENTS) -> dict[str, dict[str, list[str]]]:
    """Experiment -> rule -> messages, for whatever would cost a point."""
    said = {key: findings(folder, key) for key in keys}
    return {key: found for key, found in said.items() if found}


def slowed(folder: Path, factor) -> None:
    """Every time of the operations and steps longer by `factor()`, and what follows from it."""
    with edited(folder, "gemm.csv") as f:
        by = [factor() for _ in range(len(f))]
        f["ms"] *= by
        f["tflops"] /= by
        f["gbs"] /= by
    with edited(folder, "ops.csv") as f:
        by = [factor() for _ in range(len(f))]
        f["ms"] *= by
        f["gbs"] /= by
    with edited(folder, "regimes.csv") as f:
        f["ms"] *= [factor() for _ in range(len(f))]
    with edited(folder, "gemm_sustained.csv") as f:
        took = f["seconds"].diff().fillna(f["seconds"])
        by = pd.Series([factor() for _ in range(len(f))])
        f["tflops"] /= by
        f["seconds"] = (took * by).cumsum()
    for file in ("micro_batches.csv", "sweep.csv"):
        with edited(folder, file) as f:
            by = [factor() for _ in range(len(f))]
            f["step_ms"] *= by
            f["tokens_per_s"] /= by
            if "mfu_percent" in f:
                f["mfu_percent"] /= by
                for kind in [*KINDS, "optimizer_ms"]:
                    f[kind] *= [factor() for _ in range(len(f))]
    for file in ("stages.csv", "stages_rc.csv"):
        with edited(folder, file) as f:
            step = f.index[-1]
            f.loc[f.index != step, KINDS] *= factor()
            for kind in KINDS:
                f.loc[step, kind] = f[kind][:-1].sum()
            before = f.loc[step, "step_ms"]
            f.loc[step, "step_ms"] = f.loc[step, KINDS].sum() + f.loc[step, "optimizer_ms"]
            by = f.loc[step, "step_ms"] / before
            f.loc[step, ["tokens_per_s", "mfu_percent"]] /= by


def made_on(folder: Path, gpu: str | None) -> None:
    """Every sidecar names this GPU; None: there are no sidecars."""
    for path in folder.glob("*.csv.json"):
        if gpu is None:
            path.unlink()
            continue
        note = json.loads(path.read_text())
        for run in note["runs"]:
            run["gpu"] = gpu
        path.write_text(json.dumps(note))


def blank(folder: Path, columns: list[str]) -> None:
    """No values in these columns, wherever they are."""
    for file in TABLES:
        with edited(folder, file) as f:
            for column in columns:
                if column in f:
                    f[column] = float("nan")
