"""Experiments 2 to 7: are the files there, complete, and what a measurement looks like?"""

from __future__ import annotations

from pathlib import Path

import pytest
from gradescope_utils.autograder_utils.decorators import number, weight

from shared.assignment import assignment


def require(key: str, results: Path) -> None:
    """Fails, naming what is missing and the command that makes it, unless all files are there."""
    experiment = assignment().exercise(key)
    missing = [f for f in experiment.files if not (results / f).is_file()]
    if missing:
        pytest.fail(f"not run yet: no {', '.join(missing)}; run {experiment.command}")


@number("E2.1")
@weight(5)
def test_one_operation(results):
    """The measurements of single operations are complete and plausible."""
    require("E2", results)
    pytest.fail("the checks of this experiment do not exist yet")


@number("E3.1")
@weight(5)
def test_forward_recordings(results):
    """The recordings of a forward pass are complete and plausible."""
    require("E3", results)
    pytest.fail("the checks of this experiment do not exist yet")


@number("E4.1")
@weight(5)
def test_micro_batches(results):
    """The table and the figure of micro batches are complete and plausible."""
    require("E4", results)
    pytest.fail("the checks of this experiment do not exist yet")


@number("E5.1")
@weight(5)
def test_stages(results):
    """The stages of a step are complete and plausible, without and with recomputation."""
    require("E5", results)
    pytest.fail("the checks of this experiment do not exist yet")


@number("E6.1")
@weight(5)
def test_step_recordings(results):
    """The recordings of a training step are complete and plausible."""
    require("E6", results)
    pytest.fail("the checks of this experiment do not exist yet")


@number("E7.1")
@weight(5)
def test_sweep(results):
    """The sweep is complete and plausible."""
    require("E7", results)
    pytest.fail("the checks of this experiment do not exist yet")
