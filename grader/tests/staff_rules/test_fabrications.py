"""What the rules for the staff note of made-up results, and that they leave honest ones alone."""

import pytest

from grader.proof.fabrications import timer_aware
from grader.proof.fabrications.__main__ import ENOUGH, measured
from grader.proof.fabrications.tally import fabrications, timer_aware_fabrications
from grader.rules.experiment import load
from grader.staff_rules.report import notes

from .conftest import SETS

FABRICATIONS = fabrications()
AWARE = timer_aware_fabrications()


def rules_that_note(course, name, fabrication, number=0):
    """The rules that note the fabrication and not the honest set that it was made from."""
    honest = course.notes(course.student(number), number)
    forged = course.notes(course.forged(name, fabrication, number), number)
    return {note.rule for note in forged} - {note.rule for note in honest}


def test_no_measured_set_has_more_than_one_note():
    tally = measured(SETS)
    assert tally.most <= 1, tally.lines


@pytest.mark.parametrize("quiet", [False, True])
def test_drawn_honest_sets_have_no_note(course, quiet):
    """Of 400 drawn ones less than one in fifty; of six, then, hardly ever one."""
    found = {n: course.notes(course.student(n, quiet), n) for n in range(10, 16)}
    noted = {n: [note.line() for note in of] for n, of in found.items() if of}
    assert len(noted) <= 1 and all(len(of) <= 1 for of in noted.values()), noted


def test_nine_fabrications_in_ten_are_noted(course):
    assert len(FABRICATIONS) >= 12
    missed = [n for n, make in FABRICATIONS.items() if not rules_that_note(course, n, make)]
    assert len(missed) <= (1 - ENOUGH) * len(FABRICATIONS), missed


def test_most_that_keep_the_timers_tick_are_noted_by_other_rules(course):
    tick = {"timer_tick", "stages_tick"}
    missed = [n for n, make in AWARE.items() if not rules_that_note(course, n, make, 1) - tick]
    assert len(missed) <= 2, missed


def test_a_few_percent_in_ticks_are_noted_by_no_rule(course):
    """What the rules cannot tell: everything scaled by less than occasions and GPUs differ."""

    def scaled(folder, other):
        folder.scale(lambda ms: 0.96)
        timer_aware.in_ticks(folder)

    assert not rules_that_note(course, "scaled-by-little", scaled, number=1)


@pytest.mark.parametrize("name", ["copied", "copied_table", "spliced"])
def test_a_copy_is_honest_without_its_original(course, name):
    """What the rules cannot tell: measurements that somebody else made."""
    forged = course.forged(f"{name}-alone", FABRICATIONS[name], 2)
    mine = {note.rule for note in notes(load(course.student(2).path))}
    assert {note.rule for note in notes(load(forged.path))} <= mine
