"""Every wrong solution is caught by the test it names, and every right one passes.

Each is judged here on its own exercise; `make prove` judges all of them on all exercises.
"""

from __future__ import annotations

import pytest

from grader.proof.corpus import cases, solution, stubs
from grader.proof.prove import SUITES, Bench, complaints, misdiagnosed
from shared.assignment import assignment

CODING = [e.key for e in assignment().of_kind("coding")]
BY_LENGTH = sorted(CODING, key=lambda key: -assignment().exercise(key).points)


@pytest.fixture(scope="session")
def bench():
    with Bench() as bench:
        yield bench


@pytest.mark.parametrize("key", BY_LENGTH)
def test_corpus_of_exercise(key, bench):
    corpus = cases({key})
    full = bench.judge("staff solution", solution(), [key]).points
    verdicts = {c.name: bench.judge(c.name, c.files(), [key]) for c in corpus}
    found = {c.name: complaints(c, verdicts[c.name], full) for c in corpus}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert misdiagnosed(corpus, verdicts) == []


def test_stubs_get_nothing(bench):
    points = bench.judge("stubs", stubs(), CODING).points
    assert {suite: sum(points[suite].values()) for suite in SUITES} == {"public": 0, "hidden": 0}


# C1 to C8: at least this many mistakes that students make, and this many other styles.
AT_LEAST = dict(
    C1=(5, 3), C2=(3, 1), C3=(3, 1), C4=(5, 3), C5=(5, 3), C6=(5, 3), C7=(5, 3), C8=(3, 1)
)


@pytest.mark.parametrize(("key", "wrong", "right"), [(k, *n) for k, n in AT_LEAST.items()])
def test_the_corpus_is_as_large_as_it_must_be(key, wrong, right):
    corpus = cases({key})
    assert sum(c.wrong for c in corpus) >= wrong
    assert sum(not c.wrong for c in corpus) >= right
