"""Mistakes in Experiments 3 and 6."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from .mistake import (
    edited,
    keep,
    mistake,
    ran_on,
    record_instead,
    recording_files,
    summarized_again,
    swapped,
)

# --- Experiment 3 ---


@mistake("E3", "ranges_above_their_floors")
def passes_swapped(folder: Path) -> None:
    """Gave the small pass the large one's name, and the other way round."""
    for file, other in zip(recording_files("fwd_small"), recording_files("fwd_large"), strict=True):
        kept = (folder / file).read_bytes()
        shutil.copy(folder / other, folder / file)
        (folder / other).write_bytes(kept)


@mistake("E3", "ranges_above_their_floors")
def large_pass_is_small(folder: Path) -> None:
    """Forgot --micro-batch-size 32."""
    record_instead(folder, "fwd_large", "fwd_small")


@mistake("E3", "large_pass_takes_longer")
def small_pass_is_large(folder: Path) -> None:
    """Left --micro-batch-size 32 in the command of the small pass."""
    record_instead(folder, "fwd_small", "fwd_large")


@mistake("E3", "naive_forward_is_slower")
def naive_forgotten(folder: Path) -> None:
    """Forgot --moe-impl naive."""
    record_instead(folder, "fwd_small_naive", "fwd_small")


@mistake("E3", "instances_are_layers")
def four_layers(folder: Path) -> None:
    """Recorded the first four layers, as in the example of the handout."""
    trace = pd.read_csv(folder / "fwd_large_nvtx_gpu_proj_trace.csv")
    layer = trace["Name"].str.extract(r"layers\.(\d+)$")[0].astype(float)
    begin, took = trace["Projected Start (ns)"], trace["Projected Duration (ns)"]
    dropped = pd.Series(False, index=trace.index)
    for start, duration in zip(begin[layer >= 4], took[layer >= 4], strict=True):
        dropped |= (begin >= start) & (begin < start + duration)
    trace[~dropped].to_csv(folder / "fwd_large_nvtx_gpu_proj_trace.csv", index=False)
    summarized_again(folder, "fwd_large")


@mistake("E3", "rows_are_there")
def no_ranges_of_modules(folder: Path) -> None:
    """Recorded before Coding 4 was done: only the ranges that were there have rows."""
    for file, column in (("ranges", "range"), ("nvtx_gpu_proj_trace", "Name")):
        keep(
            folder,
            f"fwd_small_{file}.csv",
            lambda f, c=column: ~f[c].str.contains("layers|norm|embed|lm_head"),
        )


@mistake("E3", "ranges_are_the_trace_added_up")
def half_a_trace(folder: Path) -> None:
    """Copied the file from the cluster while it was being written."""
    keep(folder, "fwd_small_nvtx_gpu_proj_trace.csv", lambda f: f.index < len(f) // 2)


@mistake("E3", "ranges_are_the_trace_added_up")
def not_per_step(folder: Path) -> None:
    """Added the table of ranges up by hand and did not divide by the two steps."""
    with edited(folder, "fwd_large_ranges.csv") as frame:
        frame["gpu_ms_per_step"] *= 2


@mistake("E3", "ranges_are_the_trace_added_up")
def ranges_in_microseconds(folder: Path) -> None:
    """Wrote GPU times in microseconds."""
    with edited(folder, "fwd_small_ranges.csv") as frame:
        frame["gpu_ms_per_step"] *= 1e3


@mistake("E3", "instances_are_layers")
def range_columns_swapped(folder: Path) -> None:
    """Instances and GPU operations the wrong way round."""
    with edited(folder, "fwd_small_ranges.csv") as frame:
        swapped(frame, "instances", "gpu_ops")


@mistake("E3", "kernels_do_the_arithmetic")
def kernels_of_the_other_pass(folder: Path) -> None:
    """Took the small pass's kernel summary for the large one's."""
    name = "{}_cuda_gpu_kern_sum.csv"
    shutil.copy(folder / name.format("fwd_small"), folder / name.format("fwd_large"))


@mistake("E3", "kernels_fit_into_the_steps")
def kernels_of_a_larger_pass(folder: Path) -> None:
    """Took the large pass's kernel summary for the small one's."""
    name = "{}_cuda_gpu_kern_sum.csv"
    shutil.copy(folder / name.format("fwd_large"), folder / name.format("fwd_small"))


@mistake("E3", "shares_add_up")
def top_of_the_calls(folder: Path) -> None:
    """Kept the calls that matter and deleted the first one, which was only waiting."""
    keep(folder, "fwd_large_cuda_api_sum.csv", lambda f: f.index > 0)


@mistake("E3", "files")
def nothing_recorded(folder: Path) -> None:
    """Recorded where the profiler saw no GPU: a header and no rows."""
    path = folder / "fwd_small_cuda_gpu_kern_sum.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")


# --- Experiment 6 ---


@mistake("E6", "ranges_above_their_floors")
def one_short_sequence(folder: Path) -> None:
    """Left $step out of the command's variables: one sequence of 512 tokens instead of 8192."""
    with edited(folder, "train_nvtx_gpu_proj_trace.csv") as frame:
        frame["Projected Duration (ns)"] //= 12
    with edited(folder, "train_ranges.csv") as frame:
        frame["gpu_ms_per_step"] /= 12


@mistake("E6", "rows_are_there")
def recompute_forgotten(folder: Path) -> None:
    """Forgot --recompute."""
    for file, other in zip(recording_files("train_rc"), recording_files("train"), strict=True):
        shutil.copy(folder / other, folder / file)


@mistake("E6", "recomputed_as_asked")
def recompute_left_on(folder: Path) -> None:
    """Left --recompute in the command of the first recording."""
    record_instead(folder, "train", "train_rc")


@mistake("E6", "naive_step_is_slower")
def grouped_and_naive_swapped(folder: Path) -> None:
    """Gave the naive recording the grouped one's name, and the other way round."""
    for file, other in zip(recording_files("train"), recording_files("train_naive"), strict=True):
        kept = (folder / file).read_bytes()
        shutil.copy(folder / other, folder / file)
        (folder / other).write_bytes(kept)


@mistake("E6", "a_step_is_its_parts")
def backward_is_its_range(folder: Path) -> None:
    """Took the range `backward` for the backward pass, though another thread launches that."""
    with edited(folder, "train_ranges.csv") as frame:
        rows = frame.set_index("range")["gpu_ms_per_step"]
        frame.loc[frame["range"] == "(backward)", "gpu_ms_per_step"] = rows["backward"]


@mistake("E6", "shares_add_up")
def ten_kernels(folder: Path) -> None:
    """Handed in the ten kernels that the screen showed."""
    keep(folder, "train_cuda_gpu_kern_sum.csv", lambda f: f.index < 10)


@mistake("E6", "ranges_nest")
def edited_range(folder: Path) -> None:
    """Mistyped a figure: layers.* has a digit too few."""
    with edited(folder, "train_ranges.csv") as frame:
        frame.loc[frame["range"] == "layers.*", "gpu_ops"] //= 10


@mistake("E6", "ranges_above_their_floors")
def train_on_another_machine(folder: Path) -> None:
    """Copied a faster machine's recording; the sidecars are the own run's."""
    for file in recording_files("train")[:4]:
        ran_on(folder, file, "NVIDIA L40")
