"""Judges one hand-in, from the upload to the results; always comes back with results."""

from __future__ import annotations

import platform
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

from shared.assignment import assignment

from ..leaderboard import asked
from ..staff_rules.report import staff_notes
from ..suite.places import ROOT
from ..suite.plugin import TEST_FAILED
from ..suite.score_table import score_table
from . import contain, stage
from .compare import model_notes
from .intake import Handin, open_handin
from .results import Results, TestResult, write_results
from .run import SUITES, Outcome, planned_tests, run_suite
from .solver import Solver

LEAST_S = 5.0  # a suite is not begun with less than that


@dataclass(frozen=True)
class Options:
    """How a hand-in is judged."""

    tier: str = "virtual"  # or "cuda"
    rung: str = ""  # containment to begin with; "" is the strongest
    select: tuple[str, ...] = ()  # pytest's arguments that choose exercises
    unshielded_hidden: bool = False  # run hidden tests even where staff files can be read


def judge(upload: Path, output: Path | None, options: Options) -> Results:
    """Judges the hand-in at `upload`; results are written to `output` as they come.

    A fault of the grader is in the results (`grader_fault`), with what was judged before it.
    """
    start = time.monotonic()
    results = Results(provenance=_provenance(options))
    results.provenance["handin"] = {"name": upload.name}

    def save() -> None:
        results.seconds = time.monotonic() - start
        if output:
            write_results(results, output)

    try:
        planned = [TestResult.of_record(r, judged=False) for r in planned_tests(options.select)]
        results.tests = planned
        save()
        handin = open_handin(upload, assignment())
        _describe(handin, results)
        with tempfile.TemporaryDirectory(prefix="judge-") as folder:
            _run(handin, Path(folder), options, results, save)
    except Exception:
        results.grader_fault = "\n".join(filter(None, [results.grader_fault, _fault()]))
    shown = [t for t in results.tests if t.visibility == "visible"]
    results.output = score_table(shown, assignment())
    save()
    return results


def _fault() -> str:
    return traceback.format_exc(limit=-12)


def _describe(handin: Handin, results: Results) -> None:
    results.problems += handin.problems
    results.notes += handin.notes
    results.notes += model_notes(handin.for_running())
    results.provenance["handin"] = {
        "name": handin.name,
        "sha256": handin.sha256,
        "size_bytes": handin.size_bytes,
        "student": handin.student,
        "files": len(handin.files),
        "manifest": {
            k: v for k, v in (handin.manifest or {}).items() if isinstance(v, str | int | float)
        },
    }


def _run(
    handin: Handin, folder: Path, options: Options, results: Results, save: Callable[[], None]
) -> None:
    table = assignment()
    files = handin.for_running()
    staged = folder / "staged"
    staged.mkdir()
    folder.chmod(0o711)  # the solver may be another user; it need not list this
    private = folder / "private"  # what the judge writes down as it goes
    private.mkdir(mode=0o700)
    stage.lay_out(staged)
    sources = {f: data for f, data in files.items() if f in table.files}
    handed_in = stage.put_in(staged / "handin", sources)
    artifacts = stage.put_in(
        private / "artifacts", {f: d for f, d in files.items() if f not in table.files}
    )
    measured = artifacts / table.handin.results
    if measured.is_dir():
        results.notes += staff_notes(measured)
    rung = contain.strongest(staged, options.rung)
    results.provenance["containment"] = rung.name
    results.notes.append(f"The hand-in's code ran behind {rung.says}.")
    deadline = time.monotonic() + table.limits.suite_s
    with Solver(staged, options.tier, rung, table.limits) as solver:
        solver.use(handed_in, measured)
        for problem in solver.broken.values():
            if problem.file not in _said(handin):
                results.problems.append(problem.message)
        results.problems += solver.warned
        for suite in SUITES:
            if suite == "hidden" and not (rung.hides_staff_files or options.unshielded_hidden):
                _refuse_hidden(results, rung)
                continue
            left = deadline - time.monotonic()
            if left < LEAST_S and solver.hung:
                _say_overtime(results, solver.hung)
                continue
            outcome = run_suite(suite, solver, private, max(LEAST_S, left), list(options.select))
            for record in outcome.records.values():
                results.record(TestResult.of_record(record))
            _note_what_tests_broke(outcome, results)
            if outcome.fault:
                results.grader_fault += f"{suite}: {outcome.fault}\n"
            solver.hung |= outcome.hung  # learned in the child that ran the suite
            if outcome.overtime:
                _say_overtime(results, solver.hung)
            save()
        if not options.select:
            results.leaderboard = asked(solver)
            save()
        if solver.died:
            results.notes.append("The hand-in's code killed the solver, which was started again.")


def _said(handin: Handin) -> str:
    return "\n".join(handin.problems)


def _say_overtime(results: Results, hung: set[str]) -> None:
    """Tells why tests were not judged: the hand-in has used up the time of all of them."""
    limit_s = assignment().limits.suite_s
    names = ", ".join(assignment().exercise(key).name for key in sorted(hung))
    for test in results.tests:
        if not test.judged and not test.output:
            test.output = (
                f"Not judged: the {limit_s:g} s that a hand-in may take were used up. Mend first "
                f"what took too long: {names}."
            )


def _note_what_tests_broke(outcome: Outcome, results: Results) -> None:
    for record in outcome.records.values():
        if record["message"].startswith(TEST_FAILED):
            results.notes.append(f"{record['id']}: {record['message']}")


def _refuse_hidden(results: Results, rung: contain.Rung) -> None:
    results.grader_fault += (
        "The hidden tests did not run: nothing on this machine keeps staff files from the "
        f"hand-in's code ({rung.says}; {rung.why_not_hidden}). `python -m grader.judge.contain` "
        "tells what would; or say --hidden-tests-unshielded.\n"
    )


@cache
def _commit() -> str:
    """The grader's commit, with a mark if files were changed since; "" outside git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _provenance(options: Options) -> dict:
    table = assignment()
    return {
        "assignment": table.name,
        "term": table.term,
        "release": table.release,
        "grader": _commit(),
        "course_gpu": table.gpu,
        "tier": options.tier,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "host": platform.node(),
        "judged_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
