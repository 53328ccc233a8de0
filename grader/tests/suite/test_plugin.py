"""What the suites' plugin makes of a test: points, words, and whose fault it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shared.assignment import assignment

from ...suite import plugin
from ...suite.backend import BackendFault, Reply
from ...suite.plugin import SolutionFailed, _is_our_fault, _message, failure_of, scored
from ...suite.score_table import score_table


def raised(error: BaseException):
    with pytest.raises(BaseException) as info:
        raise error
    return info


def test_an_assertion_shows_its_own_words_and_no_values():
    shown = _message(raised(AssertionError("these times are in seconds\nassert 1 == 2\n +  where")))
    assert shown == "these times are in seconds"
    assert "tell the course staff" in _message(raised(AssertionError("")))


def test_a_failure_of_the_hand_in_shows_its_own_lines():
    error = SolutionFailed("olmoe/prof.py, line 3: ValueError: bad", "tb", ["line 3, in f: g()"])
    assert _message(raised(error)).splitlines() == [str(error), "    line 3, in f: g()"]


def test_a_broken_test_says_that_it_is_the_test():
    assert _message(raised(TypeError("x"))).startswith(plugin.TEST_FAILED)


@pytest.mark.parametrize(
    "error, when, ours",
    [
        (BackendFault("disk full"), "call", True),
        (OSError("no secret"), "setup", True),
        (OSError("cannot clean"), "teardown", True),
        (SolutionFailed("bad"), "setup", False),
        (AssertionError("bad"), "setup", False),
        (AssertionError("bad"), "call", False),
        (SolutionFailed("bad"), "call", False),
        (TypeError("weird answer"), "call", False),
    ],
)
def test_whose_fault_it_is(error, when, ours):
    assert _is_our_fault(error, when) is ours


def test_what_ended_names_the_place_and_what_to_do():
    hung = failure_of(Reply(ended="took longer than 60 s", where="olmoe/prof.py, line 4"), "f.py")
    assert str(hung).startswith("olmoe/prof.py, line 4: the code under test took longer than 60 s.")
    assert hung.hung
    ended = failure_of(Reply(ended="ended the Python process", printed="bye"), "olmoe/prof.py")
    assert str(ended).startswith("olmoe/prof.py: the code") and "bye" not in str(ended)
    assert "bye" in ended.traceback and not ended.hung


def test_the_staff_read_the_end_of_what_was_printed():
    told = failure_of(Reply(ended="ended", printed="a" * 10_000 + "end"), "f.py").traceback
    assert told.endswith("end") and len(told) < 5000


def test_not_implemented_is_one_line():
    stub = {
        "type": "NotImplementedError",
        "message": "Coding 1: cuda_time",
        "file": "olmoe/prof.py",
        "line": 50,
        "own": ["olmoe/prof.py, line 50, in cuda_time: raise"],
        "traceback": "tb",
    }
    failure = failure_of(Reply(raised=stub), "olmoe/prof.py")
    assert _message(raised(failure)) == (
        "olmoe/prof.py, line 50: NotImplementedError: Coding 1: cuda_time"
    )


def item(number: str, points: float, suite="public"):
    folder = plugin._grader() / suite
    return SimpleNamespace(
        nodeid=number,
        max_score=points,
        path=folder / "test_x.py",
        function=SimpleNamespace(__number__=number),
    )


def test_weights_that_do_not_add_up_stop_the_run():
    full = assignment().exercise("C2").points
    plugin._check_weights([item("C2.1", full - 1), item("C2.2", 1), item("S.1", 0)])
    with pytest.raises(pytest.UsageError, match=r"public tests of C2: weights add up to 5"):
        plugin._check_weights([item("C2.1", full), item("C2.2", 1)])
    with pytest.raises(pytest.UsageError, match="hidden tests of C2"):
        plugin._check_weights([item("C2.1", full), item("C2.1", 1, "hidden")])


@pytest.mark.parametrize("number", ["", "W1.1", "C1", "1.1"])
def test_a_test_that_belongs_to_nothing_stops_the_run(number):
    with pytest.raises(pytest.UsageError, match=r"wants @number"):
        plugin.exercise_of(item(number, 1))


def test_a_test_that_was_not_judged_is_not_called_ok():
    record = {"exercise": "C2", "max_score": 4.0, "passed": False, "skipped": True}
    lines = score_table([scored(record)], assignment()).splitlines()
    assert lines[1].split() == ["Coding", "2", "----", "0/4"]
