"""Every broken hand-in of grader/proof/broken: what it costs, and what is said about it to whom."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from ... import proof
from ...proof.corpus import solution
from ...proof.prove import UNTOUCHED

FOLDER = Path(proof.__file__).with_name("broken")
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__")
FIELD = re.compile(r"^(loses|says|staff):\s*(.+?)\s*$", re.MULTILINE)
EXERCISES = "1,2"  # one of olmoe/prof.py, one of a1/perfmodel.py


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_hand_in_costs_what_it_must_and_its_author_learns_why(judged, name):
    module = importlib.import_module(f"{proof.__name__}.broken.{name}")
    fields = FIELD.findall(ast.get_docstring(ast.parse(Path(module.__file__).read_text())))
    files = solution()
    if hasattr(module, "broken"):
        module.broken(files)
        done = judged(files, EXERCISES)
    else:
        done = judged(module.upload(files), EXERCISES)

    assert not done.results.grader_fault
    assert all(test.judged for test in done.results.tests)
    (loses,) = [value for field, value in fields if field == "loses"]
    lost = [] if loses == "nothing" else loses.split()
    for test in done.results.tests:
        should_fail = test.number in lost or test.exercise in lost
        assert test.passed is not should_fail, (test.number, test.output, test.staff_output)
    for field, value in fields:
        if field == "says":
            assert value in done.shown()
        if field == "staff":
            assert value in done.kept()


def test_the_staff_solution_loses_nothing_and_reads_nothing(judged):
    done = judged(solution() | {"a1/answers.md": b"x"}, EXERCISES)
    assert done.points() == pytest.approx(done.full(), abs=UNTOUCHED)
    assert not done.results.problems
    assert not any(test.output for test in done.results.tests)


def test_there_is_a_broken_hand_in_of_each_kind():
    assert len(NAMES) >= 40
