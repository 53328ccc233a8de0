"""Judges the corpus: wrong solutions must be caught, right ones must pass, nothing else may move.

python -m grader.proof [--only C1,C7] [--all-exercises] [--tier virtual] [--jobs 2]
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.assignment import assignment

from ..judge import contain, stage
from ..judge.run import SUITES, run_suite
from ..judge.solver import Solver
from .corpus import Case

UNTOUCHED = 1e-6  # points; a difference smaller than this is a rounding error


@dataclass
class Verdict:
    """What became of one case."""

    name: str
    passed: dict[str, dict[str, bool]] = field(default_factory=dict)  # suite -> test id -> passed
    messages: dict[str, str] = field(default_factory=dict)  # test id -> message
    points: dict[str, dict[str, float]] = field(default_factory=dict)  # suite -> exercise
    faults: list[str] = field(default_factory=list)


class Bench:
    """One solver that judges many hand-ins of our own, one after the other."""

    def __init__(self, tier: str = "virtual", rung: str = ""):
        self._folder = tempfile.TemporaryDirectory(prefix="proof-")
        self.folder = Path(self._folder.name)
        staged = self.folder / "staged"
        staged.mkdir()
        self.folder.chmod(0o711)  # the solver may be another user
        stage.lay_out(staged)
        limits = assignment().limits
        self.solver = Solver(staged, tier, contain.strongest(staged, rung), limits)
        self._count = 0

    def __enter__(self) -> Bench:
        self.solver.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self.solver.__exit__(*exception)
        self._folder.cleanup()

    def judge(
        self,
        name: str,
        files: dict[str, bytes],
        exercises: list[str],
        suites: Sequence[str] = SUITES,
        test: str = "",
    ) -> Verdict:
        """The given coding exercises (["C1"]), or of them the test of this number ("C1.2")."""
        self._count += 1
        handin = stage.put_in(self.solver.staged / str(self._count), files)
        work = self.folder / f"work-{self._count}"
        work.mkdir()
        self.solver.use(handin, self.folder / "no-results")
        verdict = Verdict(name)
        select = ["--coding", ",".join(key.removeprefix("C") for key in exercises)]
        select += ["--test", test] if test else []
        for suite in suites:
            outcome = run_suite(suite, self.solver, work, self.solver.limits.suite_s, select)
            if outcome.fault:
                verdict.faults.append(f"{suite}: {outcome.fault}")
            verdict.passed[suite] = {}
            verdict.points[suite] = dict.fromkeys(exercises, 0.0)
            for record in outcome.records.values():
                key = record["id"].partition("/")[2]
                verdict.passed[suite][key] = record["passed"]
                if record["passed"]:
                    verdict.points[suite][record["exercise"]] += record["max_score"]
                elif suite == "public":
                    verdict.messages[key] = record["message"]
        return verdict


_bench: Bench  # of this worker process
_exercises: list[str] | None


def open_bench(tier: str, rung: str, exercises: list[str] | None) -> None:
    """Prepares a worker process; `exercises` are judged of every case, None: its own alone."""
    global _bench, _exercises  # noqa: PLW0603  a pool's workers have no other place
    _bench, _exercises = Bench(tier, rung), exercises
    _bench.__enter__()


def judge_job(job: tuple[str, dict[str, bytes], list[str]]) -> Verdict:
    """One case in a prepared worker: its name, files, and own exercises."""
    name, files, own = job
    return _bench.judge(name, files, _exercises or own)


def complaints(case: Case, verdict: Verdict, untouched: dict[str, dict[str, float]]) -> list[str]:
    """What is not as it must be, in words; nothing when all is well.

    untouched: suite -> exercise -> points of the staff solution, for the other exercises.
    """
    wrong = list(verdict.faults)
    for suite in SUITES:
        points = verdict.points[suite]
        full = untouched[suite][case.exercise]
        if suite in case.points:
            if abs(points[case.exercise] - case.points[suite]) > UNTOUCHED:
                got, said = points[case.exercise], case.points[suite]
                wrong.append(f"{suite}: {got:g} points, not {said:g}")
        elif case.wrong:
            if points[case.exercise] > full - UNTOUCHED:
                wrong.append(f"not caught by the {suite} suite")
            if _case_passed(verdict.passed[suite], case.caught_by):
                wrong.append(f"{suite}: {case.caught_by} does not catch it")
        elif points[case.exercise] < full - UNTOUCHED:
            failed = [k for k, good in verdict.passed[suite].items() if not good]
            said = "; ".join(verdict.messages.get(k, "") for k in failed)
            wrong.append(f"{suite}: a right solution fails {', '.join(failed)}: {said}")
        for other, score in points.items():
            if other != case.exercise and abs(score - untouched[suite][other]) > UNTOUCHED:
                wrong.append(f"{suite}: disturbs {other}")
    if case.says:
        said = "\n".join(
            m for k, m in verdict.messages.items() if k.split("[")[0] == case.caught_by
        )
        if case.says not in said:
            wrong.append(f"{case.caught_by} says {said!r}, not {case.says!r}")
    return wrong


def _case_passed(passed: dict[str, bool], test: str) -> bool:
    mine = [good for key, good in passed.items() if key.split("[")[0] == test]
    return bool(mine) and all(mine)


def misdiagnosed(cases: list[Case], verdicts: dict[str, Verdict]) -> list[str]:
    """Diagnoses that a right or a differently wrong solution received."""
    found = []
    for case in cases:
        if not case.wrong or not case.says:
            continue
        alike = {c.name for c in cases if c.wrong and c.says == case.says}
        for other in cases:
            if other.name in alike or other.exercise != case.exercise:
                continue
            said = verdicts[other.name].messages.values()
            if any(case.says in message for message in said):
                found.append(f"{other.name} is told {case.says!r}, the mistake of {case.name}")
    return found
