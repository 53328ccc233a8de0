"""Experiments 2 to 7: are the files there, complete, and what a measurement looks like?

Four checks each, whose rules are in rules/: all is there (completeness), nothing a GPU cannot do
(bounds), figures that follow from others do (bookkeeping), and what must be larger is (order).  The
last three are judged once every table can be read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gradescope_utils.autograder_utils.decorators import number, weight

from shared.assignment import assignment

from ..rules.completeness import files
from ..rules.experiment import load, tables_of
from ..rules.rule import complaints

MOST_SHOWN = 8


def judge(folder: Path, key: str, group: str) -> None:
    """Fails with what the rules of one group say about an experiment's files."""
    results, experiment = load(folder), assignment().exercise(key)
    missing = results.missing(key)
    if len(missing) == len(experiment.files):
        pytest.fail(f"not run yet: no {', '.join(missing)}; run {experiment.command}")
    if group == "completeness":
        found = [*files(results, key), *complaints(results, key, group)]
    elif unread := [t.file for t in tables_of(key) if not results.has(t.name)]:
        found = [f"not judged until {key}.1 finds that {', '.join(unread)} can be read"]
    else:
        found = complaints(results, key, group)
    if found:
        more = len(found) - MOST_SHOWN
        pytest.fail("\n".join(found[:MOST_SHOWN] + [f"... and {more} more"] * (more > 0)))


# --- Experiment 2 ---


@number("E2.1")
@weight(2)
def test_operations_are_complete(results):
    """Every GEMM shape, size and workload is measured, and both plots are there."""
    judge(results, "E2", "completeness")


@number("E2.2")
@weight(1)
def test_operations_within_bounds(results):
    """No operation is faster than the GPU can be; clock and power are possible."""
    judge(results, "E2", "bounds")


@number("E2.3")
@weight(1)
def test_operations_add_up(results):
    """TFLOP/s, GB/s and intensity follow from sizes and times."""
    judge(results, "E2", "bookkeeping")


@number("E2.4")
@weight(1)
def test_operations_in_order(results):
    """What is eight times as large takes longer, once it takes milliseconds."""
    judge(results, "E2", "order")


# --- Experiment 3 ---


@number("E3.1")
@weight(2)
def test_forward_recordings_are_complete(results):
    """The three recordings have their four tables, with a row for every range."""
    judge(results, "E3", "completeness")


@number("E3.2")
@weight(1)
def test_forward_recordings_within_bounds(results):
    """No range is faster than the arithmetic in it."""
    judge(results, "E3", "bounds")


@number("E3.3")
@weight(1)
def test_forward_recordings_add_up(results):
    """The tables of a recording agree, ranges nest, and there are 16 layers."""
    judge(results, "E3", "bookkeeping")


@number("E3.4")
@weight(1)
def test_forward_recordings_in_order(results):
    """More tokens take longer, and the naive MoE launches more and is slower."""
    judge(results, "E3", "order")


# --- Experiment 4 ---


@number("E4.1")
@weight(2)
def test_micro_batches_are_complete(results):
    """Every micro batch size is there, without and with recomputation, and the figure."""
    judge(results, "E4", "completeness")


@number("E4.2")
@weight(1)
def test_micro_batches_within_bounds(results):
    """No step is below its floor, no peak below the training state."""
    judge(results, "E4", "bounds")


@number("E4.3")
@weight(1)
def test_micro_batches_add_up(results):
    """Micro batches and tokens/s follow from the other columns."""
    judge(results, "E4", "bookkeeping")


@number("E4.4")
@weight(1)
def test_micro_batches_in_order(results):
    """Larger micro batches need more memory, recomputation less."""
    judge(results, "E4", "order")


# --- Experiment 5 ---


@number("E5.1")
@weight(2)
def test_stages_are_complete(results):
    """Both tables have every stage of the configuration asked for, and the step."""
    judge(results, "E5", "completeness")


@number("E5.2")
@weight(1)
def test_stages_within_bounds(results):
    """No kind of work is below its floor, no peak below the training state."""
    judge(results, "E5", "bounds")


@number("E5.3")
@weight(1)
def test_stages_add_up(results):
    """The stages add up to the step; tokens/s and MFU follow."""
    judge(results, "E5", "bookkeeping")


@number("E5.4")
@weight(1)
def test_stages_in_order(results):
    """Layers are alike, backward takes longer than forward, recomputation saves memory."""
    judge(results, "E5", "order")


# --- Experiment 6 ---


@number("E6.1")
@weight(2)
def test_step_recordings_are_complete(results):
    """The three recordings have their four tables, with a row for every range."""
    judge(results, "E6", "completeness")


@number("E6.2")
@weight(1)
def test_step_recordings_within_bounds(results):
    """No range is faster than the arithmetic in it, or the optimizer than its traffic."""
    judge(results, "E6", "bounds")


@number("E6.3")
@weight(1)
def test_step_recordings_add_up(results):
    """The tables of a recording agree, ranges nest, and there are four layers."""
    judge(results, "E6", "bookkeeping")


@number("E6.4")
@weight(1)
def test_step_recordings_in_order(results):
    """The naive MoE launches more and is slower."""
    judge(results, "E6", "order")


# --- Experiment 7 ---


@number("E7.1")
@weight(2)
def test_sweep_is_complete(results):
    """20 steps or more, of several layers, sizes and lengths, without and with recomputation."""
    judge(results, "E7", "completeness")


@number("E7.2")
@weight(1)
def test_sweep_within_bounds(results):
    """No step is below its floor, no peak below the training state."""
    judge(results, "E7", "bounds")


@number("E7.3")
@weight(1)
def test_sweep_adds_up(results):
    """tokens/s and MFU follow, and the kinds of work add up to about the step."""
    judge(results, "E7", "bookkeeping")


@number("E7.4")
@weight(1)
def test_sweep_in_order(results):
    """Far more tokens take longer and need more memory; recomputation saves memory."""
    judge(results, "E7", "order")
