"""Nothing a GPU cannot do: more than its peak, less than its floor, what its sheet rules out."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from shared.artifacts import table
from shared.gpus import Gpu

from .experiment import Results, has_sheet
from .floors import ABOVE_COMPUTE, Step, operation_ms
from .recordings import RECORDED, steps_in
from .rule import rule

NOT_WAITED = "was the GPU waited for, and are the iterations divided out once? (Coding 1)"
LARGE_MS = 1.0  # floors above this one dwarf the cost of launches
TOO_SLOW = 300  # times the floor: a shared slice of a GPU is not so slow, a wrong unit is
ABOVE_MAX_CLOCK = 1.05
LEAST_CLOCK_MHZ = 100  # GPUs idle at more
ABOVE_POWER_LIMIT = 1.5  # the limit is held on average; boards of one name differ in it
LEAST_POWER_W = 5
ABOVE_MEMORY = 2  # under WSL, allocations may spill into the host's memory
BELOW_STATE = 0.99
REGIMES = {  # workload -> FLOPs, bytes of one call
    "large GEMM, 8192^3": (2 * 8192**3, 3 * 2 * 8192**2),
    "add two 1 GiB tensors": (0, 3 * 2**30),
    "small GEMM, 64 x 2048 x 1024": (
        2 * 64 * 2048 * 1024,
        2 * (64 * 2048 + 2048 * 1024 + 64 * 1024),
    ),
}


def _not_below(where: str, what: str, gpu: Gpu, seen_ms: float, floor_ms: float) -> Iterator[str]:
    """One measured time against the least it can be, and against a wrong unit."""
    if seen_ms < floor_ms:
        yield (
            f"{where}: {what} in {seen_ms:.4g} ms, but an {gpu.name} needs {floor_ms:.4g} ms at "
            f"its peak: {NOT_WAITED}"
        )
    elif has_sheet(gpu) and floor_ms > LARGE_MS and seen_ms > TOO_SLOW * floor_ms:
        yield (
            f"{where}: {what} in {seen_ms:.4g} ms is {seen_ms / floor_ms:.0f} times what an "
            f"{gpu.name} needs at its peak: are these milliseconds, and of one call?"
        )


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    """The column's values where there are any."""
    return frame[name].dropna() if name in frame else pd.Series(dtype=float)


# --- Experiment 2 ---


@rule("gemm")
def gemm_under_the_roofline(results: Results, name: str) -> Iterator[str]:
    """A GEMM takes at least its FLOPs at the highest clock, and at least the time to move the bytes
    that the L2 cache cannot hold.  Faster than that is a timer that did not wait for the GPU."""
    gpu = results.gpu(name)
    for line, row in results.frame(name).iterrows():
        m, k, n = (float(row[c]) for c in "mkn")
        floor_ms = operation_ms(2 * m * k * n, 2 * (m * k + k * n + m * n), gpu)
        where = f"{table(name).file}, line {line}, column ms"
        what = f"{row['shape']} with m = {row['m']}"
        yield from _not_below(where, what, gpu, row["ms"], floor_ms)


@rule("ops")
def ops_under_the_bandwidth(results: Results, name: str) -> Iterator[str]:
    """What does not fit into the L2 cache comes from memory, at its bandwidth.  (Up to a few times
    the cache's size, an operation may well be faster than memory: Written Question 1.)"""
    gpu = results.gpu(name)
    for line, row in results.frame(name).iterrows():
        floor_ms = operation_ms(0, float(row["bytes_moved"]), gpu)
        where = f"{table(name).file}, line {line}, column ms"
        what = f"{row['op']} of {row['bytes_moved'] / 1e6:.4g} MB"
        yield from _not_below(where, what, gpu, row["ms"], floor_ms)


@rule("regimes")
def regimes_under_the_roofline(results: Results, name: str) -> Iterator[str]:
    """The same for the three workloads, whose sizes are fixed."""
    gpu = results.gpu(name)
    for line, row in results.frame(name).iterrows():
        if row["workload"] in REGIMES:
            floor_ms = operation_ms(*REGIMES[row["workload"]], gpu)
            where = f"{table(name).file}, line {line}, column ms"
            yield from _not_below(where, row["workload"], gpu, row["ms"], floor_ms)


@rule("gemm_sustained")
def sustained_under_the_peak(results: Results, name: str) -> Iterator[str]:
    """No group of GEMMs is above the peak at the highest clock."""
    gpu, most = results.gpu(name), ABOVE_COMPUTE * results.gpu(name).max_tflops
    rates = _column(results.frame(name), "tflops")
    for line, tflops in rates[rates > most].items():
        yield (
            f"{table(name).file}, line {line}, column tflops: {tflops:.5g} TFLOP/s, but an "
            f"{gpu.name} has {gpu.max_tflops:.0f} at its highest clock: {NOT_WAITED}"
        )


@rule("gemm_sustained", "regimes", "stages", "stages_rc", "sweep")
def clocks_and_power_possible(results: Results, name: str) -> Iterator[str]:
    """Clock and power, where the driver tells them, are within the data sheet, with room for a
    factory overclock and for what a board may draw before its limit acts.  MHz and W, that is: a
    clock in GHz or a power in mW is far outside.  0 is a driver's way not to tell."""
    gpu, frame, file = results.gpu(name), results.frame(name), table(name).file
    for column, unit, least, most in (
        ("clock_mhz", "MHz", LEAST_CLOCK_MHZ, ABOVE_MAX_CLOCK * gpu.max_sm_mhz),
        ("power_w", "W", LEAST_POWER_W, ABOVE_POWER_LIMIT * gpu.power_w),
    ):
        values = _column(frame, column)
        for line, value in values[(values > most) | ((values < least) & (values > 0))].items():
            yield (
                f"{file}, line {line}, column {column}: {value:.5g} {unit} is not what an "
                f"{gpu.name} runs at ({least} to {most:.0f} {unit})"
            )


# --- Experiments 4, 5 and 7 ---


def _step(row: pd.Series, gpu: Gpu, sequences: str = "micro_batch_size") -> Step:
    tokens = int(row[sequences]) * int(row["seqlen"])
    return Step(int(row["layers"]), tokens, int(row["seqlen"]), row["recompute"] == "yes", gpu)


def _steps(results: Results, name: str, sequences: str) -> Iterator[tuple[str, pd.Series, Step]]:
    """Every measured step of a table: where it stands, its row, its floors."""
    runs = {} if name != "sweep" else {r: results.gpu(name, r) for r in _runs(results, name)}
    frame, gpu = results.frame(name), results.gpu(name)
    if "stage" in frame:
        frame = frame[frame["stage"] == "step"]
    for line, row in frame[frame["step_ms"].notna()].iterrows():
        where = f"{table(name).file}, line {line}"
        yield where, row, _step(row, runs.get(row.get("run"), gpu), sequences)


def _runs(results: Results, name: str) -> set[str]:
    return {r["run"] for r in results.runs(name) if isinstance(r.get("run"), str)}


def _described(step: Step) -> str:
    recompute = ", recomputed" if step.recompute else ""
    return f"{step.layers} layers, {step.tokens} tokens{recompute}"


@rule("micro_batches")
def accumulated_step_above_its_floor(results: Results, name: str) -> Iterator[str]:
    """A step takes at least the arithmetic of all its tokens, and of the recomputation, and the
    optimizer's traffic."""
    for where, row, step in _steps(results, name, "global_batch_size"):
        what = f"a step of {_described(step)}"
        yield from _not_below(
            f"{where}, column step_ms", what, step.gpu, row["step_ms"], step.step_ms
        )


@rule("stages", "stages_rc", "sweep")
def step_above_its_floor(results: Results, name: str) -> Iterator[str]:
    """So does a step of one micro batch; and its forward, its backward pass (twice the arithmetic),
    its recomputation (all of a layer but what only its output needs) and its optimizer (the
    training state, read and written) each take at least their share."""
    for where, row, step in _steps(results, name, "micro_batch_size"):
        for column in ("step_ms", "forward_ms", "backward_ms", "recompute_ms", "optimizer_ms"):
            if column == "recompute_ms" and step.recompute and row[column] == 0:
                yield (
                    f"{where}, column recompute_ms: 0 in a step with recomputation: does the model "
                    "recompute (Coding 5), and does stage_times tell it from backward (Coding 7)?"
                )
            elif pd.notna(row[column]):
                floor_ms = getattr(step, column)
                what = f"{column.removesuffix('_ms')} of {_described(step)}"
                yield from _not_below(
                    f"{where}, column {column}", what, step.gpu, row[column], floor_ms
                )


@rule("micro_batches", "stages", "stages_rc", "sweep")
def memory_holds_the_training_state(results: Results, name: str) -> Iterator[str]:
    """When the optimizer runs, weights, gradients and both moments are in memory: the peak is not
    below 8 bytes per parameter.  Nor is it far above what the GPU has: GiB, not GB or MB."""
    sequences = "global_batch_size" if name == "micro_batches" else "micro_batch_size"
    for where, row, step in _steps(results, name, sequences):
        if row["peak_gib"] < BELOW_STATE * step.state_gib:
            yield (
                f"{where}, column peak_gib: {row['peak_gib']:.5g} GiB, but weights, "
                f"gradients and moments of {step.layers} layers alone are {step.state_gib:.2f} GiB"
            )
        elif row["peak_gib"] > ABOVE_MEMORY * step.gpu.memory_gib:
            yield (
                f"{where}, column peak_gib: {row['peak_gib']:.5g} GiB, but an {step.gpu.name} has "
                f"{step.gpu.memory_gib:.1f}: is this GiB (2^30 bytes)?"
            )


# --- Experiments 3 and 6 ---


@rule("*_ranges")
def ranges_above_their_floors(results: Results, name: str) -> Iterator[str]:
    """The ranges in which most of the arithmetic happens take at least the time of that arithmetic,
    for the number of tokens that the experiment asks for; so a recording of another, smaller
    configuration shows."""
    wanted, gpu, frame = table(name), results.gpu(name), results.frame(name)
    asked = RECORDED[wanted.recording]
    floors = asked.floors_ms(gpu)
    for line, row in frame.iterrows():
        seen, floor = row["gpu_ms_per_step"], floors.get(row["range"], 0.0)
        if seen < floor:
            yield (
                f"{wanted.file}, line {line}, column gpu_ms_per_step: {row['range']} in "
                f"{seen:.4g} ms, but an {gpu.name} needs {floor:.4g} ms at its peak for "
                f"{asked}: is this that recording? Run {wanted.command}"
            )


@rule("*_cuda_gpu_kern_sum")
def kernels_do_the_arithmetic(results: Results, name: str) -> Iterator[str]:
    """All kernels together take at least the time of the pass's arithmetic, once for every step
    recorded: fewer rows, or rows of a smaller recording, fall short."""
    wanted, gpu = table(name), results.gpu(name)
    steps = steps_in(results, wanted.recording)
    if not steps:
        return
    asked = RECORDED[wanted.recording]
    seen_ms = results.frame(name)["Total Time (ns)"].sum() / 1e6
    floor_ms = steps * asked.floors_ms(gpu)["step"]
    if seen_ms < floor_ms:
        yield (
            f"{wanted.file}: all kernels together ran {seen_ms:.4g} ms, but {steps} x {asked} "
            f"need {floor_ms:.4g} ms on an {gpu.name} at its peak: are rows missing, or is this "
            f"another recording's? Run {wanted.command}"
        )
