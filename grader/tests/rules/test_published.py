"""What other machines measured breaks no rule under their own data sheets.

published/ has the figures that the published assignment quotes, from an L40 and an RTX 5090.  They
are a few rows of each table, so completeness is not asked for; columns that were not published are
filled so that the row can be read.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from shared.artifacts import table, write
from shared.gpus import gpu
from shared.provenance import write_sidecar

from ...rules.bookkeeping import SHAPES
from ...rules.experiment import load
from ...rules.rule import all_rules

PUBLISHED = Path(__file__).parent / "published"
GPUS = ["NVIDIA L40", "NVIDIA GeForce RTX 5090"]


def read(file: str, source: str, name: str) -> pd.DataFrame:
    frame = pd.read_csv(PUBLISHED / file)
    return frame[(frame["source"] == source) & (frame["gpu"] == name)].dropna(axis=1, how="all")


def broken(folder: Path, artifact: str, rows: pd.DataFrame, name: str) -> list[str]:
    """What the rules say, but for what is missing."""
    rows = rows.reindex(columns=[c.name for c in table(artifact).columns])
    write(artifact, rows, folder / table(artifact).file)
    write_sidecar(folder / table(artifact).file, {"run": "published", "gpu": name})
    results = load(folder)
    assert results.problems(artifact) == []
    assert results.gpu(artifact) == gpu(name)
    rules = [one for one in all_rules() if one.group != "completeness"]
    return [m for one in rules for m in one.messages(results)]


@pytest.mark.parametrize("name", GPUS)
def test_regimes(tmp_path, name):
    rows = read("published_part1.csv", "regimes", name)
    assert len(rows) == 3
    assert broken(tmp_path, "regimes", rows, name) == []


def test_gemm(tmp_path):
    rows = read("published_part1.csv", "gemm", GPUS[0])
    rows[["shape", "m"]] = rows["workload"].str.split(" M=", expand=True)
    rows["m"] = rows["m"].astype(int)
    rows["k"], rows["n"] = zip(*(SHAPES[s] for s in rows["shape"]), strict=True)
    m, k, n = rows["m"], rows["k"], rows["n"]
    rows["intensity"] = m * k * n / (m * k + k * n + m * n)
    rows = rows.rename(columns={"gb_per_s": "gbs"})
    assert len(rows) == 4
    assert broken(tmp_path, "gemm", rows, GPUS[0]) == []


def test_micro_batches(tmp_path):
    rows = read("published_steps.csv", "micro_batches", GPUS[0])
    rows = rows.assign(
        global_batch_size=rows["micro_batch_size"] * rows["micro_batches"], status="ok"
    )
    assert len(rows) == 6
    assert broken(tmp_path, "micro_batches", rows, GPUS[0]) == []


def test_sweep(tmp_path):
    rows = read("published_steps.csv", "sweep", GPUS[0])
    optimizer_ms = 23.24  # as published for two layers; the rest is split as a step's is
    rows = rows.assign(
        forward_ms=(rows["step_ms"] - optimizer_ms) / 3,
        backward_ms=(rows["step_ms"] - optimizer_ms) * 2 / 3,
        recompute_ms=0.0,
        optimizer_ms=optimizer_ms,
        status="ok",
        run="published",
    )
    assert len(rows) == 2
    assert broken(tmp_path, "sweep", rows, GPUS[0]) == []


def test_stages(tmp_path):
    """The table of the handout's two layers, recomputed."""
    stages = [
        ("embed", 0.19, 1.15, 0.0),
        ("layers.0", 34.19, 64.81, 32.58),
        ("layers.1", 34.78, 67.36, 38.03),
        ("head", 42.24, 79.33, 0.0),
        ("step", 111.40, 212.66, 70.62),
    ]
    rows = pd.DataFrame(stages, columns=["stage", "forward_ms", "backward_ms", "recompute_ms"])
    rows = rows.assign(layers=2, micro_batch_size=8, seqlen=2048, recompute="yes")
    step = read("published_steps.csv", "stages", GPUS[0]).iloc[0]
    for column in ("step_ms", "tokens_per_s", "mfu_percent", "peak_gib"):
        rows.loc[4, column] = step[column]
    rows.loc[4, "optimizer_ms"] = 23.24
    rows.loc[4, ["kernel_running_percent", "memory_busy_percent"]] = [99.0, 65.0]
    rows.loc[4, ["clock_mhz", "power_w"]] = [1923.0, 298.0]
    assert broken(tmp_path, "stages_rc", rows, GPUS[0]) == []


def test_fast_gemm_of_an_rtx_5090(tmp_path):
    """It boosts above the clock of its data sheet, and so above the sheet's peak."""
    rows = pd.DataFrame(
        {
            "seconds": [0.0249 * (i + 1) for i in range(241)],
            "tflops": 5 * 2 * 8192**3 / 0.0249 / 1e12,
            "clock_mhz": 2655.0,
            "power_w": 610.0,
        }
    )
    assert rows["tflops"][0] > gpu(GPUS[1]).peak_tflops
    assert broken(tmp_path, "gemm_sustained", rows, GPUS[1]) == []
