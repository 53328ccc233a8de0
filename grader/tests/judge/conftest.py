"""A solver that is started once and judges many hand-ins, and hand-ins for it."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.assignment import assignment

from ...judge import contain, one, stage
from ...judge.results import Results
from ...judge.solver import Solver
from .samples import tar_gz

# Short, so that what hangs costs little; long enough for a busy machine. `grader/proof/broken`
# quotes these figures.
LIMITS = dataclasses.replace(
    assignment().limits, import_s=3, test_s=3, resident_mib=700, processes=20
)


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """A solver behind the strongest containment there is."""
    folder = tmp_path_factory.mktemp("solver", numbered=True)
    for parent in (folder, *folder.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)  # the solver may be another user
    staged = folder / "staged"
    staged.mkdir()
    stage.lay_out(staged)
    with Solver(staged, "virtual", contain.strongest(staged), LIMITS) as solver:
        yield solver
    assert list(staged.iterdir()) == [staged / "released"]


@dataclasses.dataclass
class Judged:
    """A hand-in's results, and the file as Gradescope gets it."""

    results: Results
    content: dict

    def points(self, suite: str = "public") -> dict[str, float]:
        """By exercise."""
        tests = [t for t in self.results.tests if t.suite == suite]
        return {e: sum(t.score for t in tests if t.exercise == e) for e in self.exercises(suite)}

    def full(self, suite: str = "public") -> dict[str, float]:
        tests = [t for t in self.results.tests if t.suite == suite]
        return {
            e: sum(t.max_score for t in tests if t.exercise == e) for e in self.exercises(suite)
        }

    def exercises(self, suite: str) -> list[str]:
        return sorted({t.exercise for t in self.results.tests if t.suite == suite})

    def shown(self) -> str:
        """All that a student may ever read of it."""
        texts = [self.content["output"]]
        texts += [f"{t['number']} {t['name']} {t['output']}" for t in self.content["tests"]]
        return "\n".join(texts)

    def kept(self) -> str:
        """What the staff read besides."""
        texts = [self.content["extra_data"]["notes"], self.content["extra_data"]["grader_fault"]]
        texts += [t["extra_data"]["staff_output"] for t in self.content["tests"]]
        return "\n".join(texts)


@pytest.fixture
def judged(started, tmp_path, monkeypatch) -> Callable[..., Judged]:
    """judged(files or bytes, "1,2") scores a hand-in the whole way, but for the solver's start."""

    class Kept:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return started

        def __exit__(self, *_):
            pass

    def judge(upload: dict[str, bytes] | bytes, coding: str, suites=("public",)) -> Judged:
        file = tmp_path / "handin.tar.gz"
        file.write_bytes(tar_gz(upload) if isinstance(upload, dict) else upload)
        with monkeypatch.context() as patch:
            patch.setattr(one, "Solver", Kept)
            patch.setattr(one, "SUITES", suites)
            patch.setattr(one.contain, "strongest", lambda *_: started.rung)
            # Below the folder that the solver was started with, which is all that it sees.
            patch.setattr(tempfile, "tempdir", str(started.staged))
            select = (f"--coding={coding}",)
            planned = [r for r in one.planned_tests(select) if r["suite"] in suites]
            patch.setattr(one, "planned_tests", lambda _: planned)
            results = one.judge(file, tmp_path / "results.json", one.Options(select=select))
        return Judged(results, json.loads((tmp_path / "results.json").read_bytes()))

    return judge
