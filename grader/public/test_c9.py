"""Coding 9: `predict_step_ms`, `predict_peak_gib`, against measurements of the course's GPU."""

import pytest
from gradescope_utils.autograder_utils.decorators import number, weight

from ..truth import (
    MEMORY,
    TIME,
    NoTruthError,
    enough,
    explained,
    graded,
    judge,
    read_truth,
    truth_path,
)


@pytest.fixture
def truth():
    """Reads the measured steps of the public tests; the hidden suite has a fixture of its own."""
    return lambda: read_truth(truth_path(hidden=False))


def _check(probe, truth, quantity, limit):
    try:
        steps = graded(truth(), quantity)
    except NoTruthError as error:
        raise AssertionError(str(error)) from None
    assert steps, f"the truth table has no step that is graded on {quantity.what}"
    calls = [step.arguments for step in steps]
    seen = probe("perfmodel.predictions", function=quantity.function, steps=calls)
    judged = judge(seen, steps, quantity)
    if not enough(judged, limit):
        raise AssertionError(explained(judged, limit, quantity))


@number("C9.1")
@weight(5)
def test_time_within_30_percent(probe, truth):
    """predict_step_ms is within 30% for four configurations in five."""
    _check(probe, truth, TIME, 0.30)


@number("C9.2")
@weight(5)
def test_time_within_15_percent(probe, truth):
    """predict_step_ms is within 15% for four configurations in five."""
    _check(probe, truth, TIME, 0.15)


@number("C9.3")
@weight(5)
def test_memory_within_20_percent(probe, truth):
    """predict_peak_gib is within 20% for four configurations in five."""
    _check(probe, truth, MEMORY, 0.20)


@number("C9.4")
@weight(5)
def test_memory_within_8_percent(probe, truth):
    """predict_peak_gib is within 8% for four configurations in five."""
    _check(probe, truth, MEMORY, 0.08)
