"""Numbers that measured the same thing twice, in two columns or two files.

How far honest ones are apart depends on the regime (96 configurations of a step, measured on two
occasions): steps of more than 4096 tokens differ by 6% at worst, of 1025 to 4096 by 17%, and
smaller ones, which are launch-bound and measure the host's CPU, by half.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..rules.experiment import Results
from .note import Note
from .reading import folded, gpu_ms, measured, sweep, trace_ms, whole_step

WORKLOADS = ("large GEMM, 8192^3", "add two 1 GiB tensors", "small GEMM, 64 x 2048 x 1024")
TRACED = ("fwd_small", "fwd_large", "fwd_small_naive", "train", "train_rc", "train_naive")


def may_differ(tokens: float) -> float:
    """|log| of the ratio of two honest times of one step, at most, with some room."""
    return 0.12 if tokens > 4096 else 0.30 if tokens > 1024 else 0.80


def apart(a: float, b: float) -> float:
    """|log(a / b)|; 0 where one of them is missing."""
    return abs(float(np.log(a / b))) if a > 0 and b > 0 else 0.0


def step_and_stages(results: Results) -> list[Note]:
    """In sweep.csv the step and its stages are measured one after the other, and agree.

    Within 3% for large steps of an honest set, 8% for launch-bound ones.  A step that was made
    faster by hand is left with the stages of the slow one.

    Honest cause: another job on the GPU; a `stage_times` that is wrong.
    """
    frame = sweep(results)
    if frame is None:
        return []
    frame = frame[(frame["stages_ms"] > 0)]
    off = np.abs(np.log(frame["step_ms"] / frame["stages_ms"]))
    bad = frame[off > frame["tokens"].map(may_differ)]
    if bad.empty:
        return []
    ratio = float((bad["step_ms"] / bad["stages_ms"]).iloc[0])
    figures = {"rows": len(bad), "of": len(frame), "step / stages": ratio}
    what = "the step is not what its stages add up to"
    return [Note("step_and_stages", "sweep.csv", what, figures)]


def optimizer_time(results: Results) -> list[Note]:
    """The optimizer reads and writes the same bytes however many tokens there were.

    With equal layers an honest sweep's optimizer times are within 6% of each other; a row that
    was scaled as a whole stands out.  Noted beyond 13% of the median.

    Honest cause: another job on the GPU during those steps.
    """
    frame = sweep(results)
    if frame is None:
        return []
    usual = frame.groupby("layers")["optimizer_ms"].transform("median")
    several = frame.groupby("layers")["optimizer_ms"].transform("count") >= 3
    off = np.abs(np.log(frame["optimizer_ms"] / usual.where(usual > 0)))
    bad = frame[several & (off > 0.13)]
    if bad.empty:
        return []
    figures = {"rows": len(bad), "off by": float(off[bad.index].max())}
    what = "optimizer times of equal models differ"
    return [Note("optimizer_time", "sweep.csv", what, figures)]


def same_step(results: Results) -> list[Note]:
    """One configuration, up to three files: sweep.csv, stages.csv, and the recording of the step.

    Honest cause: a job alongside, or machines of different sites (the sidecars tell).
    """
    frame, steps = sweep(results), {}
    for name, recording in (("stages", "train"), ("stages_rc", "train_rc")):
        row = whole_step(results, name)
        if row is None:
            continue
        steps[f"{name}.csv"] = row["step_ms"]
        if frame is not None:
            match = np.logical_and.reduce(
                [frame[c] == row[c] for c in ("layers", "micro_batch_size", "seqlen", "recompute")]
            )
            if match.any():
                steps["sweep.csv"] = frame.loc[match, "step_ms"].median()
                peaks = frame.loc[match, "peak_gib"].median(), row["peak_gib"]
                if apart(*peaks) > 0.03:
                    figures = {"sweep GiB": peaks[0], "stages GiB": peaks[1]}
                    what = "the peak memory of one configuration differs; memory has no noise"
                    return [Note("same_step", f"sweep.csv, {name}.csv", what, figures)]
        tokens = row["micro_batch_size"] * row["seqlen"]
        if (row["layers"], row["micro_batch_size"], row["seqlen"]) == (4, 4, 2048):
            steps[f"{recording}_ranges.csv"] = gpu_ms(results, recording).get("step", 0)
        known = {file: ms for file, ms in steps.items() if ms > 0}
        if known and apart(max(known.values()), min(known.values())) > may_differ(tokens):
            what = "the same step took different times"
            return [
                Note("same_step", ", ".join(known), what, {f"{f} ms": t for f, t in known.items()})
            ]
        steps = {}
    return []


def micro_batches_and_step(results: Results) -> list[Note]:
    """A step of n micro batches is n passes and one optimizer, plus adding up the gradients.

    Against the sweep's row of that micro batch size, for passes of more than 4096 tokens: an
    honest set is between 1% below and 5% above.  Noted beyond 12% below and 25% above.

    Honest cause: a job alongside; an `accumulated_step` that does more than it must.
    """
    frame, table = sweep(results), measured(results, "micro_batches")
    if frame is None or table is None:
        return []
    both = table.merge(
        frame, on=["layers", "seqlen", "micro_batch_size", "recompute"], suffixes=("", "_sweep")
    )
    both = both[both["tokens"] > 4096]
    passes = both["step_ms_sweep"] - both["optimizer_ms"]
    ratio = both["step_ms"] / (both["micro_batches"] * passes + both["optimizer_ms"])
    bad = ratio[(ratio < 0.88) | (ratio > 1.25)]
    if bad.empty:
        return []
    figures = {"rows": len(bad), "of": len(ratio), "ratio": float(bad.iloc[0])}
    what = "steps are not what their micro batches take in the sweep"
    return [Note("micro_batches_and_step", "micro_batches.csv, sweep.csv", what, figures)]


def single_operations(results: Results) -> list[Note]:
    """The large GEMM and the 1 GiB addition stand in two files each, large enough to have no noise.

    regimes.csv against the first groups of gemm_sustained.csv (1% apart in an honest set) and
    ops.csv (0.04%).  Noted beyond 15%: a hot GPU clocks lower.  The small GEMM is launch-bound
    and may differ by a factor of three.

    Honest cause: a job alongside, or another clock (a power cap) at one of the two.
    """
    regimes = measured(results, "regimes")
    if regimes is None:
        return []
    ms = dict(zip(regimes["workload"], regimes["ms"], strict=True))
    large, add, small = (ms.get(w, np.nan) for w in WORKLOADS)
    between = []  # (the other file, unit, in regimes.csv, at least, at most)
    if (run := measured(results, "gemm_sustained")) is not None:
        cold, hot = run["tflops"].iloc[:5].max(), run["tflops"].iloc[-20:].min()
        tflops = 2 * 8192**3 / large / 1e9
        between.append(("gemm_sustained.csv", "TFLOP/s", tflops, hot / 1.15, cold * 1.15))
    for file, workload, wanted, factor in (
        ("ops", add, {"op": "add", "tensor_bytes": 2**30}, 1.15),
        ("gemm", small, {"shape": "expert gate_proj", "m": 64}, 3),
    ):
        frame = measured(results, file)
        if frame is not None:
            rows = frame[np.logical_and.reduce([frame[c] == v for c, v in wanted.items()])]
            other = rows["ms"].median()
            between.append((f"{file}.csv", "ms", workload, other / factor, other * factor))
    for file, unit, value, low, high in between:
        if value < low or value > high:  # false where one is missing
            figures = {f"regimes {unit}": value, "at least": low, "at most": high}
            what = "the same operation took different times"
            return [Note("single_operations", f"regimes.csv, {file}", what, figures)]
    return []


def sustained_work(results: Results) -> list[Note]:
    """Every group of the sustained run is the same number of calls, so its FLOPs are the same.

    TFLOP/s times the seconds since the row before is one constant, to what the digits of
    `seconds` allow.  A curve that was drawn, or smoothed, does not know that.

    Honest cause: rows that were deleted.
    """
    frame = measured(results, "gemm_sustained")
    if frame is None or len(frame) < 20:
        return []
    seconds = frame["seconds"].to_numpy(float)
    took = np.diff(seconds)
    work = took * frame["tflops"].to_numpy(float)[1:]
    allowed = 2e-5 + np.where(seconds[1:] < 1, 1e-6, 1e-5) / np.maximum(took, 1e-9)
    usual = float(np.median(work))
    bad = (took <= 0) | (np.abs(work / usual - 1) > 1.5 * allowed)
    if bad.sum() <= 0.03 * len(work):
        return []
    figures = {"rows": int(bad.sum()), "of": len(work)}
    what = "TFLOP/s and seconds do not belong together: groups of calls are of unequal work"
    return [Note("sustained_work", "gemm_sustained.csv", what, figures)]


def recording_and_trace(results: Results) -> list[Note]:
    """A recording's summary is computed from its trace, so the two agree to six digits.

    Times of every range, added up over the layers and divided by the number of steps.

    Honest cause: files of two recordings mixed.
    """
    for recording in TRACED:
        summary = gpu_ms(results, recording)
        trace = trace_ms(results.folder / f"{recording}_nvtx_gpu_proj_trace.csv") if summary else []
        steps = sum(name == "step" for name, _ in trace)
        if not steps:
            continue
        names = pd.Series([folded(name) for name, _ in trace])
        totals = pd.Series([ms for _, ms in trace]).groupby(names).sum() / steps
        off = {
            name: summary[name]
            for name, ms in totals.items()
            if name in summary and abs(summary[name] - ms) > 1e-4 * ms + 1e-5
        }
        if off:
            name = next(iter(off))
            figures = {"ranges": len(off), f"{name} ms": off[name], "in the trace": totals[name]}
            what = "times of ranges are not those of the trace that they were computed from"
            return [Note("recording_and_trace", f"{recording}_ranges.csv", what, figures)]
    return []
