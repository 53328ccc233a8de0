"""No honest student loses a point: measured sets, and what other machines make of them."""

from __future__ import annotations

import json
import random

import pandas as pd
import pytest

from shared.gpus import gpu

from ...proof.mistakes.mistake import edited, keep
from ...proof.mistakes.tally import copy_with_plots, honest_findings
from ...rules.experiment import has_sheet, load, sheet_of
from .sets import CASES, COUNTERS, blank, lost, made_on, slowed


@pytest.mark.parametrize(("source", "key"), CASES, ids=lambda v: getattr(v, "name", v))
def test_measured_sets(source, key):
    assert honest_findings(source, key) == {}


def test_driver_that_tells_nothing(folder):
    """NVML in a slice, a container or WSL refuses some counters or all."""
    blank(folder, COUNTERS)
    assert lost(folder, ["E2", "E5", "E7"]) == {}


def test_clock_of_zero_is_none(folder):
    with edited(folder, "gemm_sustained.csv") as frame:
        frame[["clock_mhz", "power_w"]] = 0
    assert lost(folder, ["E2"]) == {}


@pytest.mark.parametrize("deleted", [False, True])
def test_node_without_gpu_metrics(folder, deleted):
    metrics = ["sm_active", "tensor_active", "dram_read", "dram_write"]
    for path in folder.glob("*_ranges.csv"):
        frame = pd.read_csv(path)
        frame = frame.drop(columns=metrics) if deleted else frame.assign(**dict.fromkeys(metrics))
        frame.to_csv(path, index=False)
    assert lost(folder, ["E3", "E6"]) == {}


def test_no_sidecars(folder):
    made_on(folder, None)
    assert lost(folder) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"runs": 3}', '{"runs": [{"gpu": 5}, {"gpu": null}, {}]}', "\x00"]
)
def test_damaged_sidecars(folder, text):
    """A sidecar is for staff: no point hangs on it."""
    for path in folder.glob("*.csv.json"):
        path.write_text(text)
    assert lost(folder, ["E2", "E5", "E7"]) == {}


def test_slice_of_a_gpu(folder):
    """A MIG slice has its GPU's sheet, is slower, and its script finds no peak for the MFU."""
    made_on(folder, "NVIDIA H200 MIG 3g.71gb")
    slowed(folder, lambda: 2.3)
    blank(folder, ["mfu_percent", *COUNTERS])
    assert load(folder).gpu("gemm") == gpu("NVIDIA H200")
    assert lost(folder, ["E2", "E4", "E5", "E7"]) == {}


@pytest.mark.parametrize("factor", [1 / 2.2, 15])
def test_gpu_that_nobody_knows(folder, factor):
    """Faster than any data sheet here, or far slower: what is not known is not held against it."""
    made_on(folder, "NVIDIA B300 SXM")
    slowed(folder, lambda: factor)
    blank(folder, ["mfu_percent"])
    with edited(folder, "gemm_sustained.csv") as frame:
        frame["power_w"] *= 2
    if factor < 1:  # the script's six seconds, and its 20 ms to a row
        with edited(folder, "gemm_sustained.csv") as frame:
            frame["seconds"] /= factor
            frame["tflops"] *= factor
    assert not has_sheet(sheet_of("NVIDIA B300 SXM"))
    assert lost(folder, ["E2", "E4", "E5", "E7"]) == {}


@pytest.mark.parametrize("seed", range(4))
def test_shared_gpu(folder, seed):
    """A neighbour takes between nothing and half of the GPU, from one moment to the next."""
    draw = random.Random(seed)
    slowed(folder, lambda: draw.uniform(1, 2))
    assert lost(folder, ["E2", "E4", "E5", "E7"]) == {}


@pytest.mark.parametrize("seed", range(4))
def test_busy_host(folder, seed):
    """Launches take several times as long: whatever is small is slower, at random."""
    draw = random.Random(seed)
    with edited(folder, "gemm.csv") as f:
        later = [draw.uniform(0, 0.1) for _ in range(len(f))]
        by = 1 + later / f["ms"]
        f["ms"] *= by
        f["tflops"] /= by
        f["gbs"] /= by
    with edited(folder, "sweep.csv") as f:
        small = f["micro_batch_size"] * f["seqlen"] <= 2048
        for column in ("step_ms", "forward_ms", "backward_ms", "recompute_ms"):
            by = pd.Series([draw.uniform(0.7, 1.9) for _ in range(len(f))]).where(small, 1)
            f[column] *= by
            if column == "step_ms":
                f["tokens_per_s"] /= by
                f["mfu_percent"] /= by
    with edited(folder, "micro_batches.csv") as f:
        by = pd.Series([draw.uniform(1, 1.9) if b == 1 else 1 for b in f["micro_batch_size"]])
        f["step_ms"] *= by
        f["tokens_per_s"] /= by
    assert lost(folder, ["E2", "E4", "E7"]) == {}


def test_small_gpu_runs_out_of_memory(folder):
    """Rows that do not fit say so, and are as good as others."""
    with edited(folder, "micro_batches.csv") as f:
        full = (f["micro_batch_size"] >= 8) & (f["recompute"] == "no")
        f.loc[full, ["step_ms", "tokens_per_s", "peak_gib"]] = float("nan")
        f.loc[full, "status"] = "out of memory"
    with edited(folder, "sweep.csv") as f:
        measured = f.columns.difference(
            ["layers", "micro_batch_size", "seqlen", "recompute", "status", "run"]
        )
        f.loc[f["peak_gib"] > 25, "status"] = "out of memory"
        f.loc[f["peak_gib"] > 25, measured] = float("nan")
    assert lost(folder, ["E4", "E7"]) == {}


def test_sweep_over_two_machines(folder):
    """Rows of a slower GPU, and of its run, have that one's peak."""
    path = folder / "sweep.csv"
    frame = pd.read_csv(path)
    other = frame.assign(run="other", power_w=250.0, clock_mhz=2400.0)
    times = ["step_ms", "optimizer_ms", "forward_ms", "backward_ms", "recompute_ms"]
    other[times] *= 6
    other["tokens_per_s"] /= 6
    other["mfu_percent"] *= 989 / 181 / 6
    pd.concat([frame, other]).to_csv(path, index=False)
    sidecar = folder / "sweep.csv.json"
    note = json.loads(sidecar.read_text())
    note["runs"].append({"run": "other", "gpu": "NVIDIA L40"})
    sidecar.write_text(json.dumps(note))
    assert lost(folder, ["E7"]) == {}


def test_torch_recorder(folder):
    """torch.profiler sees no ranges of NVIDIA's libraries, and says so in a column."""
    for recording in ("fwd_small", "fwd_large", "fwd_small_naive", "train", "train_rc"):
        trace, ranges = (f"{recording}_{t}.csv" for t in ("nvtx_gpu_proj_trace", "ranges"))
        keep(folder, trace, lambda f: ~f["Name"].str.contains("CCCL"))
        keep(folder, ranges, lambda f: ~f["range"].str.contains("CCCL"))
        with edited(folder, trace) as frame:
            frame["Recorder"] = "torch.profiler"
    assert lost(folder, ["E3", "E6"]) == {}


def test_wider_grids(folder):
    """More than what is asked for is no fault: other micro batch sizes, a sweep measured twice."""
    path = folder / "sweep.csv"
    frame = pd.read_csv(path)
    again = frame.assign(step_ms=frame["step_ms"] * 1.1, run="later")
    again["tokens_per_s"] /= 1.1
    again["mfu_percent"] /= 1.1
    pd.concat([frame, again]).to_csv(path, index=False)
    assert lost(folder, ["E7"]) == {}


def test_sets_are_whole_copies(tmp_path):
    """The fixture adds plots and changes nothing."""
    from .sets import COMPLETE

    copied = copy_with_plots(COMPLETE, tmp_path / "a1")
    assert all((copied / p.name).read_bytes() == p.read_bytes() for p in COMPLETE.iterdir())
