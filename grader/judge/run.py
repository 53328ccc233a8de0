"""Runs the suites against one solver: pytest in a forked child, outcomes as it goes.

A child, because a suite has a deadline of its own and its fault must not be ours; forked, because
torch and pytest are loaded here already. No hand-in code runs in it: that is what the solver is
for.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pandas  # noqa: F401  so that no child of ours has to load it again
import pytest

from ..suite.backend import Backend
from ..suite.places import GRADER, ROOT
from ..suite.plugin import BACKEND

SUITES = ("public", "hidden")  # folders of grader/
COLLECT_S = 120


@dataclass
class Outcome:
    """What one run of pytest told us."""

    planned: list[dict] = field(default_factory=list)  # records of every test, before it ran
    records: dict[str, dict] = field(default_factory=dict)  # by id, of those that reported
    said: str = ""  # what pytest printed; for staff
    fault: str = ""  # why the run is incomplete, if that is ours
    overtime: bool = False  # it is incomplete because the hand-in used up the time

    @property
    def hung(self) -> set[str]:
        """The exercises in which the hand-in's code ran out of time."""
        return {r["exercise"] for r in self.records.values() if r["hung"]}


class _Judge:
    """Gives the suites the judge's backend in place of the student's own process."""

    def __init__(self, backend: Backend):
        self._backend = backend

    def pytest_configure(self, config):
        config.stash[BACKEND] = self._backend


def run_suite(
    suite: str, backend: Backend, folder: Path, limit_s: float, select: list[str] = ()
) -> Outcome:
    """Runs grader/`suite` and returns what was learned, however it ended.

    folder: an empty folder of the judge's own, for the outcomes and pytest's words.
    select: further arguments for pytest, for instance ["--coding", "7"].
    """
    records, said = folder / f"{suite}.jsonl", folder / f"{suite}.txt"
    arguments = [
        str(GRADER / suite),
        *("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")),
        *("--records", str(records), "-q", "--tb=short"),
        # Messages are the tests' own, so assertions need no rewriting; and nothing here leaks.
        *("--assert=plain", "-p", "no:cacheprovider", "-p", "no:unraisableexception"),
        *("--basetemp", str(folder / f"{suite}-tmp")),
        *select,
    ]
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(arguments, backend, said)
    code = _wait(pid, limit_s)
    outcome = Outcome(said=said.read_text(errors="replace") if said.is_file() else "")
    _read(records, outcome)
    outcome.overtime = code is None and bool(outcome.hung)
    outcome.fault = "" if outcome.overtime else _fault(code, outcome, limit_s)
    return outcome


def _child(arguments: list[str], backend: Backend, said: Path) -> None:
    code = 70
    # Other people's plugins cost a second to import, and none of them is for judging.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        out = open(said, "w", encoding="utf-8")  # noqa: SIM115  until the process ends
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = out
        code = int(pytest.main(arguments, plugins=[_Judge(backend)]))
        out.flush()
    finally:
        os._exit(code)


def _wait(pid: int, limit_s: float) -> int | None:
    """The child's exit code; None when it had to be killed."""
    end = time.monotonic() + limit_s
    pause = 0.002
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _read(file: Path, outcome: Outcome) -> None:
    if not file.is_file():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # the last line of a killed run
            content = json.loads(line)
            outcome.planned += content.get("planned", [])
            if "record" in content:
                outcome.records[content["record"]["id"]] = content["record"]


def _fault(code: int | None, outcome: Outcome, limit_s: float) -> str:
    """What kept the run from being complete; tests that fail are no fault."""
    missing = [p["id"] for p in outcome.planned if p["id"] not in outcome.records]
    if broken := [r for r in outcome.records.values() if r["fault"]]:
        ids = ", ".join(r["id"] for r in broken)
        return f"could not be run: {ids}; the first one:\n{broken[0]['fault'][-4000:]}"
    if code is None:
        return f"the suite took longer than {limit_s:g} s; not judged: {', '.join(missing)}"
    words = {
        pytest.ExitCode.OK: "",
        pytest.ExitCode.TESTS_FAILED: "",
        pytest.ExitCode.INTERRUPTED: "pytest was interrupted",
        pytest.ExitCode.INTERNAL_ERROR: "pytest itself failed",
        pytest.ExitCode.USAGE_ERROR: "pytest was called wrongly",
        pytest.ExitCode.NO_TESTS_COLLECTED: "no test was found",
    }.get(code, f"the judging process ended with status {code}")
    if words:
        return f"{words}: {outcome.said.strip()[-2000:]}"
    return f"did not report: {', '.join(missing)}" if missing else ""


_planned: dict[tuple[str, ...], list[dict]] = {}


def planned_tests(select: tuple[str, ...] = ()) -> list[dict]:
    """Records of every test of both suites, collected before any hand-in is opened.

    Raises RuntimeError when the suites cannot be collected: a fault of the grader.
    """
    if select not in _planned:
        found: list[dict] = []
        with tempfile.TemporaryDirectory(prefix="plan-") as folder:
            for suite in SUITES:
                nothing = _Nothing()
                arguments = ["--collect-only", *select]
                outcome = run_suite(suite, nothing, Path(folder), COLLECT_S, arguments)
                if not outcome.planned:
                    raise RuntimeError(f"the {suite} suite cannot be collected:\n{outcome.said}")
                found += outcome.planned
        _planned[select] = found
    return _planned[select]


class _Nothing:
    """A backend for collecting alone."""

    tier = ""
    broken: ClassVar[dict] = {}
    results = Path()
