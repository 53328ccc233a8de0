"""Every wrong solution is caught by the public test it names, and every right one passes.

`make prove` judges them all with both suites, and looks for diagnoses that somebody else received.
"""

from __future__ import annotations

import pytest

from grader.proof.corpus import cases
from grader.proof.prove import Bench
from shared.assignment import assignment


@pytest.fixture(scope="session")
def bench():
    with Bench() as bench:
        yield bench


@pytest.mark.parametrize("case", [c for c in cases() if c.caught_by], ids=lambda c: c.name)
def test_wrong_solution_is_caught_and_named(case, bench):
    verdict = bench.judge(case.name, case.files(), [case.exercise], ["public"], case.caught_by)
    assert verdict.faults == []
    assert not all(verdict.passed["public"].values()), f"{case.caught_by} passes"
    assert case.says in "\n".join(verdict.messages.values())


@pytest.mark.parametrize("case", [c for c in cases() if not c.caught_by], ids=lambda c: c.name)
def test_right_solution_passes(case, bench):
    """Also of the wrong predictors, which get the points that the rule gives them."""
    verdict = bench.judge(case.name, case.files(), [case.exercise], ["public"])
    expected = case.points.get("public", assignment().exercise(case.exercise).points)
    assert verdict.faults == []
    assert verdict.points["public"] == {case.exercise: pytest.approx(expected)}, verdict.messages


# C1 to C8: at least this many mistakes that students make, and this many other styles.
AT_LEAST = dict(
    C1=(5, 3), C2=(3, 1), C3=(3, 1), C4=(5, 3), C5=(5, 3), C6=(5, 3), C7=(5, 3), C8=(3, 1)
)


@pytest.mark.parametrize(("key", "wrong", "right"), [(k, *n) for k, n in AT_LEAST.items()])
def test_the_corpus_is_as_large_as_it_must_be(key, wrong, right):
    corpus = cases({key})
    assert sum(c.wrong for c in corpus) >= wrong
    assert sum(not c.wrong for c in corpus) >= right
