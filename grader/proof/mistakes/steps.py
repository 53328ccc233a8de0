"""Mistakes in Experiments 4, 5 and 7: training steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd

from .mistake import edited, keep, mistake, ran_on, swapped

KINDS = ["forward_ms", "backward_ms", "recompute_ms"]


def _rates(frame: pd.DataFrame, sequences: str) -> None:
    frame["tokens_per_s"] = frame[sequences] * frame["seqlen"] / frame["step_ms"] * 1e3


def _totals(frame: pd.DataFrame) -> None:
    """The row `step` anew from the stages above it."""
    step = frame.index[frame["stage"] == "step"][0]
    before = frame.loc[step, "tokens_per_s"]
    for kind in KINDS:
        frame.loc[step, kind] = frame.loc[frame["stage"] != "step", kind].sum()
    frame.loc[step, "step_ms"] = frame.loc[step, KINDS].sum() + frame.loc[step, "optimizer_ms"]
    _rates(frame, "micro_batch_size")
    frame.loc[frame["stage"] != "step", "tokens_per_s"] = float("nan")
    frame.loc[step, "mfu_percent"] *= frame.loc[step, "tokens_per_s"] / before


# --- Experiment 4 ---


@mistake("E4", "recomputation_saves_memory")
def recompute_the_wrong_way_round(folder: Path) -> None:
    """Coding 5 recomputes unless it is asked to."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["recompute"] = frame["recompute"].map({"yes": "no", "no": "yes"})


@mistake("E4", "rates_follow_from_times")
def tokens_of_one_micro_batch(folder: Path) -> None:
    """Counted the tokens of one micro batch for a step of several."""
    with edited(folder, "micro_batches.csv") as frame:
        _rates(frame, "micro_batch_size")


@mistake("E4", "memory_holds_the_training_state")
def peak_in_mebibytes(folder: Path) -> None:
    """Peak memory in MiB."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["peak_gib"] *= 2**10


@mistake("E4", "memory_holds_the_training_state")
def memory_after_the_step(folder: Path) -> None:
    """Asked for what is allocated, after the step, instead of for the peak."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["peak_gib"] = 10.53


@mistake("E4", "more_tokens_need_more_memory")
def peak_never_reset(folder: Path) -> None:
    """The peak is the highest of all rows so far, which began with the smallest micro batch."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["peak_gib"] = frame["peak_gib"][::-1].to_numpy()


@mistake("E4", "accumulated_step_above_its_floor")
def steps_without_a_sync(folder: Path) -> None:
    """Timed the launches of a step."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["step_ms"] = 14.0 * frame["micro_batches"].clip(upper=4)
        _rates(frame, "global_batch_size")


@mistake("E4", "accumulated_step_above_its_floor")
def step_is_one_pass(folder: Path) -> None:
    """Timed one micro batch where the step has several."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["step_ms"] /= frame["micro_batches"]
        _rates(frame, "global_batch_size")


@mistake("E4", "rows_are_there")
def two_layers(folder: Path) -> None:
    """Ran the smaller case that the handout shows."""
    with edited(folder, "micro_batches.csv") as frame:
        frame["layers"] = 2


@mistake("E4", "no_row_is_there_twice")
def two_runs_joined(folder: Path) -> None:
    """Pasted a second run under the first."""
    path = folder / "micro_batches.csv"
    frame = pd.read_csv(path)
    again = frame.assign(step_ms=frame["step_ms"] * 1.01)
    _rates(again, "global_batch_size")
    pd.concat([frame, again]).to_csv(path, index=False)


@mistake("E4", "something_fits")
def memory_taken_by_another(folder: Path) -> None:
    """A notebook that was still open had the GPU's memory, so nothing fitted."""
    with edited(folder, "micro_batches.csv") as frame:
        frame[["step_ms", "tokens_per_s", "peak_gib"]] = float("nan")
        frame["status"] = "out of memory"


@mistake("E4", "status_is_known")
def rows_estimated(folder: Path) -> None:
    """Filled in by hand what had not fitted, and said so."""
    with edited(folder, "micro_batches.csv") as frame:
        frame.loc[0, "status"] = "estimated"


# --- Experiment 5 ---


@mistake("E5", "rows_are_there")
def stages_rc_is_stages(folder: Path) -> None:
    """Copied stages.csv for the missing stages_rc.csv."""
    shutil.copy(folder / "stages.csv", folder / "stages_rc.csv")


@mistake("E5", "step_above_its_floor")
def recompute_does_nothing(folder: Path) -> None:
    """Ran with --recompute before Coding 5 was done: nothing is recomputed."""
    with edited(folder, "stages.csv") as frame:
        frame["recompute"] = "yes"
    shutil.copy(folder / "stages.csv", folder / "stages_rc.csv")
    with edited(folder, "stages.csv") as frame:
        frame["recompute"] = "no"


@mistake("E5", "nothing_recomputed_without")
def stages_recomputed(folder: Path) -> None:
    """Ran the table without recomputation with it: a default that was left on."""
    shutil.copy(folder / "stages_rc.csv", folder / "stages.csv")
    with edited(folder, "stages.csv") as frame:
        frame["recompute"] = "no"


@mistake("E5", "recomputed_step_needs_less_memory")
def peaks_of_the_other_run(folder: Path) -> None:
    """Copied the peak memory of each run into the other's file."""
    with edited(folder, "stages.csv") as one, edited(folder, "stages_rc.csv") as other:
        swapped_peaks = one["peak_gib"].copy(), other["peak_gib"].copy()
        other["peak_gib"], one["peak_gib"] = swapped_peaks


@mistake("E5", "backward_takes_longer_than_forward")
def forward_is_backward(folder: Path) -> None:
    """Coding 7 returns the two kinds the wrong way round."""
    with edited(folder, "stages.csv") as frame:
        swapped(frame, "forward_ms", "backward_ms")


@mistake("E5", "layers_are_alike")
def warm_up_steps_counted(folder: Path) -> None:
    """Took the mean of all steps, warm-up included: the first layer's has the kernels' loading."""
    with edited(folder, "stages.csv") as frame:
        frame.loc[frame["stage"] == "layers.0", "forward_ms"] += 100 / 7
        _totals(frame)


@mistake("E5", "stages_add_up")
def head_left_out(folder: Path) -> None:
    """Added up the layers and forgot the head."""
    with edited(folder, "stages.csv") as frame:
        step, head = (frame["stage"] == name for name in ("step", "head"))
        for kind in KINDS:
            frame.loc[step, kind] -= frame.loc[head, kind].iloc[0]


@mistake("E5", "stages_add_up")
def optimizer_left_out(folder: Path) -> None:
    """Added up the stages and forgot the optimizer."""
    with edited(folder, "stages.csv") as frame:
        frame["step_ms"] -= frame["optimizer_ms"]
        _rates(frame, "micro_batch_size")
        frame.loc[frame["stage"] != "step", "tokens_per_s"] = float("nan")


@mistake("E5", "utilization_follows")
def peak_with_sparsity(folder: Path) -> None:
    """Took the data sheet's figure with sparsity for the peak."""
    with edited(folder, "stages.csv") as frame:
        frame["mfu_percent"] /= 2


@mistake("E5", "utilization_follows")
def recomputation_is_useful_work(folder: Path) -> None:
    """Counts the recomputed forward pass among the model's FLOPs (Coding 3)."""
    with edited(folder, "stages_rc.csv") as frame:
        frame["mfu_percent"] *= 4 / 3


@mistake("E5", "rows_are_there")
def other_configuration(folder: Path) -> None:
    """Ran stages.py without arguments of an older handout: 8 sequences of 1024 tokens."""
    with edited(folder, "stages.csv") as frame:
        frame["micro_batch_size"], frame["seqlen"] = 8, 1024


@mistake("E5", "totals_are_filled_in")
def totals_deleted(folder: Path) -> None:
    """Kept the columns of the stages and emptied the others."""
    with edited(folder, "stages.csv") as frame:
        frame[["step_ms", "tokens_per_s", "mfu_percent", "peak_gib"]] = float("nan")


@mistake("E5", "step_above_its_floor")
def stages_in_seconds(folder: Path) -> None:
    """Coding 7 returns seconds."""
    with edited(folder, "stages.csv") as frame:
        frame[[*KINDS, "optimizer_ms", "step_ms"]] /= 1e3
        frame[["tokens_per_s", "mfu_percent"]] *= 1e3


# --- Experiment 7 ---


@mistake("E7", "sweep_is_large_enough")
def default_grid_alone(folder: Path) -> None:
    """Ran sweep.py once, without arguments."""
    keep(folder, "sweep.csv", lambda f: (f["layers"] == 4) & (f["recompute"] == "no"))


@mistake("E7", "step_above_its_floor")
def sweep_without_a_sync(folder: Path) -> None:
    """Timed the launches: the time is flat as tokens double."""
    with edited(folder, "sweep.csv") as frame:
        frame["step_ms"] = 4.0 * frame["layers"] + 2
        before = frame["tokens_per_s"].copy()
        _rates(frame, "micro_batch_size")
        frame["mfu_percent"] *= frame["tokens_per_s"] / before


@mistake("E7", "step_and_stages_agree")
def sweep_with_warm_up(folder: Path) -> None:
    """Took the mean of all calls of a step, of which the first takes a second."""
    with edited(folder, "sweep.csv") as frame:
        frame["step_ms"] += 1000 / 13
        before = frame["tokens_per_s"].copy()
        _rates(frame, "micro_batch_size")
        frame["mfu_percent"] *= frame["tokens_per_s"] / before


@mistake("E7", "more_tokens_take_longer")
def sweep_with_one_cold_row(folder: Path) -> None:
    """Timed the first step of the first model as well."""
    with edited(folder, "sweep.csv") as frame:
        for column in ("step_ms", "forward_ms", "backward_ms"):
            frame.loc[0, column] += 300
        before = frame["tokens_per_s"].copy()
        _rates(frame, "micro_batch_size")
        frame["mfu_percent"] *= frame["tokens_per_s"] / before


@mistake("E7", "rates_follow_from_times")
def step_in_seconds(folder: Path) -> None:
    """Converted the time of a step by hand."""
    with edited(folder, "sweep.csv") as frame:
        frame["step_ms"] /= 1e3


@mistake("E7", "memory_holds_the_training_state")
def peak_in_bytes(folder: Path) -> None:
    """Peak memory in bytes."""
    with edited(folder, "sweep.csv") as frame:
        frame["peak_gib"] *= 2**30


@mistake("E7", "utilization_follows")
def lm_head_not_counted(folder: Path) -> None:
    """Coding 3 forgets that every token is multiplied by lm_head."""
    with edited(folder, "sweep.csv") as frame:
        frame["mfu_percent"] *= 0.7


@mistake("E7", "step_above_its_floor")
def sweep_of_another_machine(folder: Path) -> None:
    """Copied a faster machine's table; the sidecar is the own run's."""
    ran_on(folder, "sweep.csv", "NVIDIA L40")


@mistake("E7", "recomputation_saves_memory")
def sweep_recompute_forgotten(folder: Path) -> None:
    """Edited the column recompute: the rows measured without say yes, and the others no."""
    with edited(folder, "sweep.csv") as frame:
        frame["recompute"] = frame["recompute"].map({"yes": "no", "no": "yes"})
