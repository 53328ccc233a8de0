"""Figures that follow from other figures: rates, totals, what lies inside what."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from olmoe.config import OlmoeConfig
from shared.artifacts import not_derived, table
from shared.gpus import GPUS

from .experiment import Results, has_sheet
from .floors import flops_per_token
from .recordings import (
    INSIDE,
    ONCE,
    PER_LAYER,
    RECOMPUTE,
    RECORDED,
    by_range,
    folded_trace,
    steps_in,
)
from .rule import rule

ROUNDED = 0.002  # of files that keep six digits, several of which are added up
WITHIN_1_PERCENT = 0.01  # of a figure that student's code computed, and of equal factors
SHARE_ROUNDED = 0.15  # nsys prints tenths of a percent
EXACT_NS = 1.0
APART = 2  # two measurements of the same step in one run, in the median of all rows; ...
FAR_APART = 10  # ... of one row
KERNELS_AT_ONCE = 2  # streams may overlap
NOTHING_RECOMPUTED = 0.05  # of the forward pass: a boundary's event may cost a little
MOST_GEMMS = 1000  # in a row: bench_gemm.py makes as many as take 20 ms
GEMM_FLOPS = 2 * 8192**3  # of bench_gemm.py's large one
CFG = OlmoeConfig()
SHAPES = {  # weight matrix -> k, n, as a1/bench_gemm.py names them
    "attention q_proj": (CFG.d_model, CFG.d_model),
    "router": (CFG.d_model, CFG.n_experts),
    "expert gate_proj": (CFG.d_model, CFG.d_expert),
    "expert down_proj": (CFG.d_expert, CFG.d_model),
    "lm_head": (CFG.d_model, CFG.vocab_size),
}
# as a1/bench_ops.py counts them
OPS_TENSORS = {"copy": 2, "add": 3, "silu(x) * y": 3, "norm": 2}


def _off(seen: float, expected: float, tolerance: float = ROUNDED, least: float = 0.0) -> bool:
    return abs(seen - expected) > tolerance * abs(expected) + least


# --- Experiment 2 ---


@rule("gemm", "ops", "micro_batches", "sweep")
def rates_follow_from_times(results: Results, name: str) -> Iterator[str]:
    """TFLOP/s, GB/s, tokens/s and the like are quotients of other columns of the row."""
    wanted, frame = table(name), results.frame(name)
    for message in not_derived(wanted, frame):
        column = next(c for c in wanted.derived if f"column {c}:" in message)
        expected = frame.eval(wanted.derived[column])
        why = _why(name, column, frame[column] / expected)
        yield f"{message}{why}; run {wanted.command} again"


def _why(name: str, column: str, factors: pd.Series) -> str:
    """A guess at the mistake, where all rows are off by the same telling factor."""
    factor = factors.median()
    if (factors / factor - 1).abs().max() > WITHIN_1_PERCENT:
        return ""
    known = {("gemm", "gbs", 2): "bf16 has two bytes per number, not four: Coding 2"}
    known[("gemm", "tflops", 0.5)] = "a multiply-add is two FLOPs: Coding 2"
    known |= {(name, column, f): "a unit is off by 1000" for f in (1e3, 1e-3, 1e6, 1e-6)}
    for (table_name, rate, times), words in known.items():
        if (table_name, rate) == (name, column) and not _off(factor, times, WITHIN_1_PERCENT):
            return f" ({words})"
    return ""


@rule("gemm")
def shapes_are_the_models(results: Results, name: str) -> Iterator[str]:
    """k and n of a row are those of the matrix it names."""
    for line, row in results.frame(name).iterrows():
        k_n = SHAPES.get(row["shape"])
        if k_n and (row["k"], row["n"]) != k_n:
            yield (
                f"{table(name).file}, line {line}, columns k and n: {row['k']} x {row['n']}, but "
                f"{row['shape']} is {k_n[0]} x {k_n[1]}"
            )


@rule("ops")
def bytes_are_the_tensors(results: Results, name: str) -> Iterator[str]:
    """An operation moves each of its tensors once."""
    for line, row in results.frame(name).iterrows():
        tensors = OPS_TENSORS.get(row["op"])
        if tensors and row["bytes_moved"] != tensors * row["tensor_bytes"]:
            yield (
                f"{table(name).file}, line {line}, column bytes_moved: {row['bytes_moved']}, but "
                f"{row['op']} moves {tensors} tensors of {row['tensor_bytes']} bytes"
            )


@rule("gemm_sustained")
def groups_are_of_equal_work(results: Results, name: str) -> Iterator[str]:
    """Every row stands for the same number of equal GEMMs: its TFLOP/s times the time since the row
    before is the same in all of them, and time goes on."""
    frame, file = results.frame(name), table(name).file
    took_s = frame["seconds"].diff().fillna(frame["seconds"])
    for line in frame.index[took_s <= 0]:
        yield (
            f"{file}, line {line}, column seconds: {frame['seconds'][line]:.6g} does not come "
            "after the row before: two runs in one file, or rows in another order?"
        )
    if (took_s <= 0).any():
        return
    gemms = frame["tflops"] * 1e12 * took_s / GEMM_FLOPS
    usual = gemms.median()
    if _off(usual, max(1, round(usual)), 0.02) or usual > MOST_GEMMS:
        yield (
            f"{file}: a row's TFLOP/s times its seconds is {usual:.4g} GEMMs of 8192^3, but "
            f"it is of a whole number below {MOST_GEMMS}: are these seconds, and TFLOP/s?"
        )
        return
    for line in frame.index[(gemms - usual).abs() > 0.02 * usual]:
        yield (
            f"{file}, line {line}: tflops x seconds since the row before is {gemms[line]:.4g} "
            f"GEMMs, but {usual:.4g} in the other rows: are rows missing?"
        )


# --- Experiments 4, 5 and 7 ---


@rule("stages", "stages_rc")
def stages_add_up(results: Results, name: str) -> Iterator[str]:
    """The row `step` has the totals of the stages above it; all kinds of work and the optimizer
    together are its time; its tokens over that time are tokens/s."""
    wanted, frame = table(name), results.frame(name)
    keys = ["layers", "micro_batch_size", "seqlen", "recompute"]
    for _, rows in frame.groupby(keys):
        steps, stages = rows[rows["stage"] == "step"], rows[rows["stage"] != "step"]
        if len(steps) != 1 or stages.empty or stages.duplicated("stage").any():
            continue  # completeness says so
        line, step = next(steps.iterrows())
        kinds = ["forward_ms", "backward_ms", "recompute_ms"]
        expected = {c: (stages[c].sum(), "the stages add up to") for c in kinds}
        expected["step_ms"] = (
            step[kinds].sum() + step["optimizer_ms"],
            "forward, backward, recompute and optimizer add up to",
        )
        tokens = step["micro_batch_size"] * step["seqlen"]
        expected["tokens_per_s"] = (tokens / step["step_ms"] * 1e3, f"{tokens} tokens in it are")
        for column, (value, words) in expected.items():
            if _off(step[column], value, least=1e-4 * len(stages)):
                yield (
                    f"{wanted.file}, line {line}, column {column}: {step[column]:.6g}, but {words} "
                    f"{value:.6g}; run {wanted.command} again"
                )


@rule("stages", "stages_rc", "sweep")
def utilization_follows(results: Results, name: str) -> Iterator[str]:
    """MFU is flops_per_token (Coding 3) times tokens/s over the peak of the GPU that ran; where the
    sidecar does not say which, any known GPU's will do."""
    wanted, frame = table(name), results.frame(name)
    sheets = [g for g in results.gpus(name) if has_sheet(g)] if results.gpu_names(name) else GPUS
    for line, row in frame[frame["mfu_percent"].notna() & frame["tokens_per_s"].notna()].iterrows():
        flops = row["tokens_per_s"] * flops_per_token(int(row["layers"]), int(row["seqlen"]))
        expected = [100 * flops / (gpu.peak_tflops * 1e12) for gpu in sheets]
        if expected and all(_off(row["mfu_percent"], e, WITHIN_1_PERCENT) for e in expected):
            yield (
                f"{wanted.file}, line {line}, column mfu_percent: {row['mfu_percent']:.4g}, but "
                f"{row['tokens_per_s']:.6g} tokens/s of {row['layers']} layers are "
                f"{expected[0]:.4g}% of the peak: is flops_per_token right (make test C=3)? Then "
                f"run {wanted.command} again"
            )


@rule("stages", "stages_rc", "sweep")
def nothing_recomputed_without(results: Results, name: str) -> Iterator[str]:
    """Without recomputation, no time is spent on it."""
    frame, file = results.frame(name), table(name).file
    without = frame[frame["recompute"] == "no"]
    spent = without["recompute_ms"] > NOTHING_RECOMPUTED * without["forward_ms"] + 0.05
    for line, ms in without["recompute_ms"][spent].items():
        yield (
            f"{file}, line {line}, column recompute_ms: {ms:.4g} ms in a step without "
            "recomputation: are the columns in order, and what does stage_times count (Coding 7)?"
        )


@rule("sweep")
def step_and_stages_agree(results: Results, name: str) -> Iterator[str]:
    """`step_ms` and the stages are two measurements of the same step, moments apart.  Launch-bound
    steps differ by a fifth; where the two are apart by a factor in most rows, or by a large one in
    any, one of them counts what it should not, or does not wait."""
    frame, file = results.frame(name), table(name).file
    measured = frame[frame["step_ms"].notna()]
    parts = measured[["forward_ms", "backward_ms", "recompute_ms", "optimizer_ms"]].sum(axis=1)
    ratio = (measured["step_ms"] / parts.where(parts > 0)).dropna()
    if ratio.empty:
        return
    apart = ratio.where(ratio > 1, 1 / ratio)
    why = "does one of them count warm-up steps, or not wait for the GPU (Coding 1 and 7)?"
    if apart.median() > APART:
        yield (
            f"{file}: step_ms is {ratio.median():.3g} times the four kinds of work together, in "
            f"the median of all rows: {why}"
        )
    for line in ratio.index[apart > FAR_APART]:
        yield (
            f"{file}, line {line}, column step_ms: {measured['step_ms'][line]:.4g} ms, but the "
            f"four kinds of work together are {parts[line]:.4g} ms: {why}"
        )


# --- Experiments 3 and 6 ---


@rule("*_ranges")
def instances_are_layers(results: Results, name: str) -> Iterator[str]:
    """Ranges inside a layer are opened once per layer and step, the others once per step: of the
    recording that the experiment asks for, with its number of layers."""
    wanted = table(name)
    asked, rows = RECORDED[wanted.recording], by_range(results, wanted.recording)
    expected = dict.fromkeys(ONCE, 1) | dict.fromkeys(PER_LAYER, asked.layers)
    expected |= {f"{RECOMPUTE}{part}": asked.layers for part in PER_LAYER}
    for part, times in expected.items():
        if part in rows.index and _off(rows["instances"][part], times):
            yield (
                f"{wanted.file}, line {rows['line'][part]}, column instances: {part} "
                f"{rows['instances'][part]:g} times per step, not {times}; run {wanted.command}"
            )


@rule("*_ranges")
def recomputed_as_asked(results: Results, name: str) -> Iterator[str]:
    """Only a step with recomputation opens ranges in its backward pass."""
    wanted, rows = table(name), results.frame(name)
    found = rows[rows["range"].str.startswith(RECOMPUTE)]
    if len(found) and not RECORDED[wanted.recording].recompute:
        yield (
            f"{wanted.file}, line {found.index[0]}: {found['range'].iloc[0]}, but this recording "
            f"is without recomputation; run {wanted.command}"
        )


@rule("*_ranges")
def ranges_nest(results: Results, name: str) -> Iterator[str]:
    """A range takes no longer than the one around it, and launches no more, nor do all ranges
    directly inside together launch more.  (Their times may overlap on several streams.)"""
    wanted = table(name)
    rows = by_range(results, wanted.recording)
    for prefix in ("", RECOMPUTE):
        inside = {f"{prefix}{a}": f"{prefix}{b}" for a, b in INSIDE.items()}
        inside = {a: b for a, b in inside.items() if a in rows.index and b in rows.index}
        for part, around in inside.items():
            for column in ("gpu_ms_per_step", "gpu_ops"):
                if part == "(backward)" and column == "gpu_ops":
                    continue  # another thread launches them, outside every range
                seen, most = rows[column][part], rows[column][around]
                if seen > most * (1 + ROUNDED) + 1e-5:
                    yield (
                        f"{wanted.file}, line {rows['line'][part]}, column {column}: {part} has "
                        f"{seen:.6g}, more than {around}, which contains it, with {most:.6g}"
                    )
        for around in dict.fromkeys(inside.values()):
            parts = [a for a, b in inside.items() if b == around and a != "(backward)"]
            ops, most = rows["gpu_ops"][parts].sum(), rows["gpu_ops"][around]
            if ops > most * (1 + ROUNDED):
                yield (
                    f"{wanted.file}, line {rows['line'][around]}, column gpu_ops: {around} has "
                    f"{most:.6g}, but {', '.join(parts)} inside it have {ops:.6g} together"
                )


@rule("train_ranges", "train_rc_ranges", "train_naive_ranges")
def a_step_is_its_parts(results: Results, name: str) -> Iterator[str]:
    """`(backward)` is what is left of a step outside forward, optimizer and recomputation, so the
    four add up to it."""
    wanted = table(name)
    rows = by_range(results, wanted.recording)
    parts = ["forward", "(backward)", "optimizer"]
    parts += [f"{RECOMPUTE}layers.*"] if RECORDED[wanted.recording].recompute else []
    if not {"step", *parts} <= set(rows.index):
        return
    step, together = rows["gpu_ms_per_step"]["step"], rows["gpu_ms_per_step"][parts].sum()
    if _off(together, step, 0.02):
        yield (
            f"{wanted.file}, line {rows['line']['step']}, column gpu_ms_per_step: the step has "
            f"{step:.6g} ms, but {', '.join(parts)} add up to {together:.6g}; run {wanted.command}"
        )


@rule("*_ranges")
def ranges_are_the_trace_added_up(results: Results, name: str) -> Iterator[str]:
    """The table of ranges is made from the trace of every single range.  Where they disagree, one
    of the two is cut off, edited, or another recording's."""
    wanted = table(name)
    trace = table(f"{wanted.recording}_nvtx_gpu_proj_trace")
    if not results.has(trace.name):
        return
    rows, folded = by_range(results, wanted.recording), folded_trace(results, wanted.recording)
    again = f"are they of one recording, and whole? Run {wanted.command}"
    if folded.empty:
        yield f"{trace.file}: no range is called step: {again}"
        return
    for part in rows.index:
        if part == "(backward)":  # what is left between ranges
            continue
        if part not in folded.index:
            yield (
                f"{wanted.file}, line {rows['line'][part]}: {part} is not in {trace.file}: {again}"
            )
            continue
        for column in folded.columns:
            seen, expected = rows[column][part], folded[column][part]
            if _off(seen, expected, least=1e-5):
                yield (
                    f"{wanted.file}, line {rows['line'][part]}, column {column}: {part} has "
                    f"{seen:.6g}, but {trace.file} adds up to {expected:.6g}: {again}"
                )
    for part in folded.index.difference(rows.index, sort=False):
        yield f"{wanted.file}: no row for {part}, which is in {trace.file}: {again}"


@rule("*_cuda_gpu_kern_sum", "*_cuda_api_sum")
def shares_add_up(results: Results, name: str) -> Iterator[str]:
    """A row's share is its time over the time of all rows, its average its time over its runs, and
    the average is between the shortest and the longest: not so where rows are missing."""
    wanted, frame = table(name), results.frame(name)
    runs = "Instances" if "Instances" in frame else "Num Calls"
    time_ns, average_ns = frame["Total Time (ns)"], frame["Avg (ns)"]
    if time_ns.sum() <= 0:
        yield f"{wanted.file}: no time in any row: nothing was recorded; run {wanted.command}"
        return
    share = 100 * time_ns / time_ns.sum()
    apart = (share - frame["Time (%)"]).abs()
    if (apart > SHARE_ROUNDED).any():
        line = apart.idxmax()
        yield (
            f"{wanted.file}, line {line}, column Time (%): {frame['Time (%)'][line]:.4g}, but its "
            f"time is {share[line]:.4g}% of all rows': are rows missing? Run {wanted.command}"
        )
    apart = (time_ns / frame[runs] - average_ns).abs() - 0.001 * average_ns
    if (apart > EXACT_NS).any():
        line = apart.idxmax()
        yield (
            f"{wanted.file}, line {line}, column Avg (ns): {average_ns[line]:.6g}, but "
            f"{time_ns[line]:.6g} ns in {frame[runs][line]} runs are "
            f"{time_ns[line] / frame[runs][line]:.6g} each"
        )
    low, high = frame["Min (ns)"] - EXACT_NS, frame["Max (ns)"] + EXACT_NS
    for line in frame.index[(average_ns < low) | (average_ns > high)]:
        yield (
            f"{wanted.file}, line {line}: Avg (ns) {average_ns[line]:.6g} is not between Min (ns) "
            "and Max (ns)"
        )


@rule("*_cuda_gpu_kern_sum")
def kernels_fit_into_the_steps(results: Results, name: str) -> Iterator[str]:
    """The kernels ran during the steps of the same recording, so together they are not far longer
    (some, where two streams overlap)."""
    wanted = table(name)
    steps, ranges = steps_in(results, wanted.recording), f"{wanted.recording}_ranges"
    if not steps or not results.has(ranges):
        return
    rows = by_range(results, wanted.recording)
    if "step" not in rows.index:
        return
    all_ms = steps * rows["gpu_ms_per_step"]["step"]
    seen_ms = results.frame(name)["Total Time (ns)"].sum() / 1e6
    if seen_ms > KERNELS_AT_ONCE * all_ms:
        yield (
            f"{wanted.file}: all kernels together ran {seen_ms:.4g} ms, but the {steps} steps of "
            f"{table(ranges).file} {all_ms:.4g} ms: are they of one recording? Run "
            f"{wanted.command}"
        )
