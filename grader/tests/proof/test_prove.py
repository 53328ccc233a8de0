"""The proof complains whenever something is not as it must be, and only then."""

from __future__ import annotations

import dataclasses

import pytest

from ...proof.corpus import Case
from ...proof.prove import Verdict, complaints, misdiagnosed

WRONG = Case(
    name="wrong/c1_x",
    wrong=True,
    title="Mistaken.",
    exercise="C1",
    caught_by="C1.2",
    says="your mistake",
    points={},
    change="",
)
RIGHT = dataclasses.replace(WRONG, name="right/c1_y", wrong=False, caught_by="", says="")
FULL = {suite: {"C1": 13.0, "C2": 4.0} for suite in ("public", "hidden")}


def verdict(case=WRONG, **changes) -> Verdict:
    """As it must be for a case that is caught (or passes), with changes."""
    lost = 6.0 if case.wrong else 0.0
    return Verdict(
        case.name,
        **{
            "passed": {s: {"C1.1": True, "C1.2[a]": not case.wrong} for s in FULL},
            "messages": {"C1.2[a]": "this is your mistake: mend it"} if case.wrong else {},
            "points": {s: {"C1": 13.0 - lost, "C2": 4.0} for s in FULL},
        }
        | changes,
    )


@pytest.mark.parametrize("case", [WRONG, RIGHT])
def test_nothing_is_said_where_all_is_well(case):
    assert complaints(case, verdict(case), FULL) == []


@pytest.mark.parametrize("suite", ["public", "hidden"])
def test_a_wrong_solution_that_is_not_caught(suite):
    points = verdict().points | {suite: dict(FULL[suite])}
    (said,) = complaints(WRONG, verdict(points=points), FULL)
    assert said == f"not caught by the {suite} suite"


@pytest.mark.parametrize("suite", ["public", "hidden"])
def test_a_wrong_solution_that_another_test_catches(suite):
    passed = verdict().passed | {suite: {"C1.1": False, "C1.2[a]": True}}
    (said,) = complaints(WRONG, verdict(passed=passed), FULL)
    assert said == f"{suite}: C1.2 does not catch it"


def test_a_message_that_does_not_name_the_mistake():
    (said,) = complaints(WRONG, verdict(messages={"C1.2[a]": "expected 3, got 4"}), FULL)
    assert "expected 3" in said and "your mistake" in said


def test_points_that_are_foreseen():
    foreseen = dataclasses.replace(WRONG, points={"public": 7.0, "hidden": 7.0})
    assert complaints(foreseen, verdict(), FULL) == []
    other = dataclasses.replace(WRONG, points={"public": 7.0, "hidden": 5.0})
    assert complaints(other, verdict(), FULL) == ["hidden: 7 points, not 5"]


def test_a_right_solution_that_fails():
    points = verdict(RIGHT).points | {"hidden": {"C1": 12.0, "C2": 4.0}}
    (said,) = complaints(RIGHT, verdict(RIGHT, points=points), FULL)
    assert said.startswith("hidden: a right solution fails")


@pytest.mark.parametrize("case", [WRONG, RIGHT])
def test_another_exercise_that_is_disturbed(case):
    points = verdict(case).points
    points["public"] = points["public"] | {"C2": 3.0}
    assert complaints(case, verdict(case, points=points), FULL) == ["public: disturbs C2"]


def test_a_fault_of_the_run_is_a_complaint():
    assert complaints(WRONG, verdict(faults=["public: killed"]), FULL) == ["public: killed"]


def test_a_diagnosis_that_a_different_solution_receives():
    other = dataclasses.replace(WRONG, name="wrong/c1_z", says="another mistake")
    verdicts = {
        WRONG.name: verdict(),
        other.name: verdict(other, messages={"C1.2[a]": "your mistake, another mistake"}),
        RIGHT.name: verdict(RIGHT, messages={}),
    }
    (said,) = misdiagnosed([WRONG, other, RIGHT], verdicts)
    assert said == "wrong/c1_z is told 'your mistake', the mistake of wrong/c1_x"
    alike = dataclasses.replace(other, says=WRONG.says)
    assert misdiagnosed([WRONG, alike, RIGHT], verdicts) == []
