"""The score table at the end of a run: a line per exercise, and the total."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.assignment import Assignment


@dataclass(frozen=True)
class Scored:
    """What the table needs to know of one test."""

    exercise: str  # "C3"; "S" for Setup
    score: float
    max_score: float
    passed: bool
    judged: bool = True


def number(points: float) -> str:
    """Points without a trailing zero: 13, 2.5."""
    return f"{round(points, 2):g}"


def score_table(tests: Iterable[Scored], table: Assignment, title: str = " score ") -> str:
    """The block that `make test` and the grader print, in the order of the assignment."""
    tests = list(tests)
    lines = [title.center(80, "=")]
    setup = [t for t in tests if t.exercise == "S"]
    if setup:
        # A Setup test that was skipped (no real checkpoint here, say) is no failure.
        bad = any(t.judged and not t.passed for t in setup)
        state = "FAIL" if bad else "OK" if any(t.passed for t in setup) else "----"
        hint = "no points; these must pass" + (" before anything else counts" if bad else "")
        lines.append(f"{'Setup':<14} {state:<5} ({hint})")
    score = out_of = 0.0
    for exercise in table.exercises:
        mine = [t for t in tests if t.exercise == exercise.key]
        if not mine:
            continue
        got, most = sum(t.score for t in mine), sum(t.max_score for t in mine)
        state = "OK" if all(t.passed for t in mine) else "FAIL"
        if not all(t.judged for t in mine):
            state = "----"  # not judged: through no fault of the hand-in
        lines.append(f"{exercise.name:<14} {state:<5} {number(got):>5}/{number(most)}")
        score, out_of = score + got, out_of + most
    lines.append(f"{'Total':<14} {'':<5} {number(score):>5}/{number(out_of)}")
    return "\n".join(lines)
