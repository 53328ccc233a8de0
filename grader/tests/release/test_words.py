"""What `make test` says of failures and of points, in a student's hurry."""

from __future__ import annotations

import pytest

from grader.suite.for_students import WIDTH, failures, uses_gpu, vouched_for
from shared.assignment import assignment


class Report:
    """As much of pytest's as is read."""

    def __init__(self, number: str, message: str, case: str = "", printed: str = ""):
        record = {
            "id": f"public/{number}" + (f"[{case}]" if case else ""),
            "number": number,
            "exercise": number.partition(".")[0],
            "title": f"What {number} checks.",
            "message": message,
        }
        self.user_properties = [("record", record)]
        self.sections = [("Captured stdout call", printed)] if printed else []
        self.nodeid, self.longreprtext = number, ""


def told(*reports) -> list[str]:
    return list(failures(reports))


def test_what_is_not_implemented_takes_a_line():
    todo = "f.py, line 3: NotImplementedError: Coding 1: f"
    reports = [Report("C1.1", todo), Report("C1.2", todo, "a"), Report("C1.2", todo, "b")]
    assert told(*reports) == [f"C1.1 to C1.2  {todo}"]
    assert told(reports[0]) == [f"C1.1  {todo}"]


def test_a_failure_says_what_was_checked_and_what_was_found():
    assert told(Report("C1.2", "twice\nas much", "one call", "hello\n")) == [
        "C1.2  What C1.2 checks. (one call)",
        "      twice",
        "      as much",
        "      captured stdout call:",
        "      | hello",
    ]


def test_exercises_and_messages_are_kept_apart():
    reports = [Report("C1.1", "x"), Report("C2.1", "x"), Report("C1.2", "y")]
    assert [line for line in told(*reports) if line.startswith("C")] == [
        "C1.1  What C1.1 checks.",
        "C2.1  What C2.1 checks.",
        "C1.2  What C1.2 checks.",
    ]


def test_cases_that_fail_alike_are_told_of_once():
    reports = [Report("C1.2", "x", "a"), Report("C1.2", "x", "b")]
    assert told(*reports) == ["C1.2  What C1.2 checks.", "      x"]


def test_long_lines_are_broken_and_words_are_not():
    lines = told(Report("C1.1", f"{'word ' * 50}{'x' * 150}"))
    assert all(len(line) <= WIDTH for line in lines[:-1]) and lines[-1].strip() == "x" * 150


def test_a_failure_that_is_no_test_of_ours_is_shown_as_it_is():
    report = Report("C1.1", "x")
    report.user_properties, report.longreprtext = [], "SyntaxError in grade/"
    assert told(report) == ["C1.1", "SyntaxError in grade/"]


def test_which_points_a_run_without_a_gpu_vouches_for():
    records = [
        {"exercise": e.key, "max_score": e.points} for e in assignment().exercises if e.points
    ]
    records = [r for r in records if not r["exercise"].startswith("W")]
    first, second, third = vouched_for([{"exercise": "S", "max_score": 0}, *records]).splitlines()
    assert first == "Vouched for: 69 points need no GPU (C2 to C3, C8 to C9, E2 to E7)."
    assert second == "Judged on a virtual GPU: 61 points (C1, C4 to C7)."
    assert "without TIER=virtual" in third
    only = vouched_for([{"exercise": "C2", "max_score": 4}])
    assert only == "Vouched for: 4 points need no GPU (C2)."


@pytest.mark.parametrize("exercise", assignment().of_kind("coding"), ids=lambda e: e.key)
def test_what_needs_no_gpu_is_plain_arithmetic(exercise):
    assert uses_gpu(exercise) == exercise.file.startswith("olmoe/")
