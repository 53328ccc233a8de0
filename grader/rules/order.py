"""What is larger than what, wherever one measures: only where far more than noise lies between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd

from shared.artifacts import table

from .experiment import Results
from .floors import compute_ms, memory_ms
from .recordings import by_range
from .rule import across, rule

TIMES_THE_WORK = 8  # between two times that are compared: a busy neighbour makes a factor of 2 or 3
TIMES_ANY_WORK = 64  # between operations that use the GPU to different degrees
SURELY_BUSY_MS = 1  # floors from which on neither launches nor a neighbour's time slices matter
TIMES_THE_STEP = 16  # between the tokens of two steps: a host several times slower hides 4
BUSY_TOKENS = 8192  # of a step: its kernels, not their launches, take the time
TIMES_THE_TOKENS = 4  # between two peaks of memory, which do not depend on the machine
SAME_GIB = 0.25  # workspaces of libraries
BACKWARD_LESS = 0.62  # of the forward pass, whose launches a busy host can make it wait for
LAYERS_ALIKE = 3
NAIVE_LESS = 0.8


def _times_grow(
    results: Results, name: str, group: str, size: str, cost: Callable[[pd.Series], float]
) -> Iterator[str]:
    """With several times the work, and a floor of milliseconds, more time.

    Rows of one group are compared at several times the size, and any two at far more of a floor.
    """
    frame, file = results.frame(name), table(name).file
    floors = frame.apply(cost, axis=1)
    for large in frame.index[floors >= SURELY_BUSY_MS]:
        alike = frame[group] == frame[group][large]
        smaller = alike & (frame[size] * TIMES_THE_WORK <= frame[size][large])
        smaller |= floors * TIMES_ANY_WORK <= floors[large]
        slower = frame["ms"][smaller & (frame["ms"] >= frame["ms"][large])]
        if slower.empty:
            continue
        small = slower.idxmax()
        a, b = (f"{frame[group][i]} with {size} = {frame[size][i]}" for i in (small, large))
        yield (
            f"{file}, lines {small} and {large}, column ms: {a} takes {frame['ms'][small]:.4g} ms, "
            f"and {b} only {frame['ms'][large]:.4g}: is the GPU waited for, and is the first call "
            "of each left out (Coding 1)?"
        )


@rule("gemm")
def more_rows_take_longer(results: Results, name: str) -> Iterator[str]:
    """Once a GEMM takes milliseconds at the peak, it takes longer than one with an eighth of its
    rows, or than any with a small part of its work.  Times that do not grow are of launches; a slow
    small one has a first call in it."""
    gpu = results.gpu(name)

    def cost(row: pd.Series) -> float:
        m, k, n = (float(row[c]) for c in "mkn")
        return max(compute_ms(2 * m * k * n, gpu), memory_ms(2 * (m * k + k * n + m * n), gpu))

    yield from _times_grow(results, name, "shape", "m", cost)


@rule("ops")
def more_bytes_take_longer(results: Results, name: str) -> Iterator[str]:
    """The same for an operation on tensors of eight times the size."""
    gpu = results.gpu(name)

    def cost(row: pd.Series) -> float:
        return memory_ms(float(row["bytes_moved"]), gpu)

    yield from _times_grow(results, name, "op", "tensor_bytes", cost)


def _measured(results: Results, name: str) -> pd.DataFrame:
    """The measured steps of a table, with their tokens per pass."""
    frame = results.frame(name)
    if "stage" in frame:
        frame = frame[frame["stage"] == "step"]
    frame = frame[frame["step_ms"].notna() & frame["peak_gib"].notna()]
    return frame.assign(tokens=frame["micro_batch_size"] * frame["seqlen"])


@rule("sweep")
def more_tokens_take_longer(results: Results, name: str) -> Iterator[str]:
    """A step of 8192 tokens or more takes longer than one of a sixteenth of the tokens, in the
    same run: another may have been on another machine."""
    file = table(name).file
    for _, rows in _measured(results, name).groupby(["layers", "recompute", "run"]):
        for large in rows.index[rows["tokens"] >= BUSY_TOKENS]:
            smaller = rows[rows["tokens"] * TIMES_THE_STEP <= rows["tokens"][large]]
            if smaller.empty:
                continue
            slowest = smaller["step_ms"].idxmax()
            if rows["step_ms"][slowest] >= rows["step_ms"][large]:
                yield (
                    f"{file}, lines {slowest} and {large}, column step_ms: "
                    f"{rows['tokens'][slowest]} tokens take {rows['step_ms'][slowest]:.4g} ms and "
                    f"{rows['tokens'][large]} only {rows['step_ms'][large]:.4g}: is the GPU waited "
                    "for, and are the warm-up steps left out (Coding 1)?"
                )
                break


@rule("micro_batches", "sweep")
def more_tokens_need_more_memory(results: Results, name: str) -> Iterator[str]:
    """Activations grow with the tokens of a pass, on every machine alike."""
    file = table(name).file
    for _, rows in _measured(results, name).groupby(["layers", "recompute"]):
        for large in rows.index:
            smaller = rows[rows["tokens"] * TIMES_THE_TOKENS <= rows["tokens"][large]]
            if smaller.empty:
                continue
            most = smaller["peak_gib"].idxmax()
            if rows["peak_gib"][most] > rows["peak_gib"][large] + SAME_GIB:
                yield (
                    f"{file}, lines {most} and {large}, column peak_gib: {rows['tokens'][most]} "
                    f"tokens per pass need {rows['peak_gib'][most]:.4g} GiB, more than "
                    f"{rows['tokens'][large]} with {rows['peak_gib'][large]:.4g}: is the peak "
                    "reset before each row?"
                )
                break


@rule("micro_batches", "sweep")
def recomputation_saves_memory(results: Results, name: str) -> Iterator[str]:
    """With recomputation the same pass never needs more memory.  (That it takes longer is in its
    floor: times of two runs on a shared machine are not compared.)"""
    file = table(name).file
    for _, rows in _measured(results, name).groupby(["layers", "micro_batch_size", "seqlen"]):
        peaks = rows["peak_gib"]
        without, with_it = peaks[rows["recompute"] == "no"], peaks[rows["recompute"] == "yes"]
        if len(without) and len(with_it) and with_it.min() > without.max() + SAME_GIB:
            yield (
                f"{file}, lines {without.idxmax()} and {with_it.idxmin()}, column peak_gib: "
                f"{with_it.min():.4g} GiB with recomputation, {without.max():.4g} without: is the "
                "column recompute right (Coding 5)?"
            )


@across("stages", "stages_rc")
def recomputed_step_needs_less_memory(results: Results) -> Iterator[str]:
    """At 8192 tokens the layers' activations are several GiB; recomputation keeps one layer's."""
    peaks = {name: _measured(results, name)["peak_gib"].min() for name in ("stages", "stages_rc")}
    if peaks["stages_rc"] >= peaks["stages"]:
        yield (
            f"stages_rc.csv, column peak_gib: {peaks['stages_rc']:.4g} GiB with recomputation, and "
            f"{peaks['stages']:.4g} in stages.csv without: does the step recompute (Coding 5), and "
            "is each file of its own run?"
        )


@rule("stages", "stages_rc", "sweep")
def backward_takes_longer_than_forward(results: Results, name: str) -> Iterator[str]:
    """The backward pass does twice the arithmetic; with 8192 tokens, launches do not hide that."""
    file = table(name).file
    steps = _measured(results, name)
    steps = steps[steps["tokens"] >= BUSY_TOKENS]
    for line, row in steps[steps["backward_ms"] < BACKWARD_LESS * steps["forward_ms"]].iterrows():
        yield (
            f"{file}, line {line}, column backward_ms: {row['backward_ms']:.4g} ms, less than "
            f"forward_ms with {row['forward_ms']:.4g}: are the two mixed up (Coding 7)?"
        )


@rule("stages", "stages_rc")
def layers_are_alike(results: Results, name: str) -> Iterator[str]:
    """The layers have one shape, so the median of none is far from the others'.  The first one's is
    where warm-up steps are counted."""
    frame, file = results.frame(name), table(name).file
    layers = frame[frame["stage"].str.fullmatch(r"layers\.\d+")]
    for column in ("forward_ms", "backward_ms", "recompute_ms"):
        usual = layers[column].median()
        for line in layers.index[layers[column] > LAYERS_ALIKE * usual + 0.1]:
            yield (
                f"{file}, line {line}, column {column}: {layers[column][line]:.4g} ms for "
                f"{layers['stage'][line]}, {usual:.4g} for the median layer: are warm-up steps "
                "counted (Coding 7)?"
            )


# --- Experiments 3 and 6 ---


@across("fwd_small_ranges", "fwd_large_ranges")
def large_pass_takes_longer(results: Results) -> Iterator[str]:
    """lm_head is one GEMM, which 32 times the tokens make longer whatever launches cost."""
    small, large = (by_range(results, name) for name in ("fwd_small", "fwd_large"))
    if "lm_head" in small.index and "lm_head" in large.index:
        ms = [rows["gpu_ms_per_step"]["lm_head"] for rows in (small, large)]
        if ms[0] >= ms[1]:
            yield (
                f"fwd_small_ranges.csv: lm_head takes {ms[0]:.4g} ms, and {ms[1]:.4g} in "
                f"fwd_large_ranges.csv: are the two recordings mixed up? Run "
                f"{table('fwd_small_ranges').command} and {table('fwd_large_ranges').command}"
            )


def _naive_is_slower(results: Results, grouped: str, naive: str) -> Iterator[str]:
    rows = {name: by_range(results, name) for name in (grouped, naive)}
    if any("experts" not in found.index for found in rows.values()):
        return
    ops = {name: found["gpu_ops"]["experts"] for name, found in rows.items()}
    ms = {name: found["gpu_ms_per_step"]["experts"] for name, found in rows.items()}
    again = f"was --moe-impl naive left out, or given twice? Run {table(f'{naive}_ranges').command}"
    if ops[naive] <= ops[grouped]:
        yield (
            f"{naive}_ranges.csv: experts has {ops[naive]:g} GPU operations, and {ops[grouped]:g} "
            f"in {grouped}_ranges.csv, but a loop over the experts launches more: {again}"
        )
    elif ms[naive] < NAIVE_LESS * ms[grouped]:
        yield (
            f"{naive}_ranges.csv: experts takes {ms[naive]:.4g} ms, and {ms[grouped]:.4g} in "
            f"{grouped}_ranges.csv, but a loop over the experts is slower: {again}"
        )


@across("fwd_small_ranges", "fwd_small_naive_ranges")
def naive_forward_is_slower(results: Results) -> Iterator[str]:
    """A loop over 64 experts launches more kernels than one grouped GEMM, or than a library's own
    loop where a GPU has no grouped kernel, and waits for the GPU in each round."""
    yield from _naive_is_slower(results, "fwd_small", "fwd_small_naive")


@across("train_ranges", "train_naive_ranges")
def naive_step_is_slower(results: Results) -> Iterator[str]:
    """The same in a training step's forward pass."""
    yield from _naive_is_slower(results, "train", "train_naive")
