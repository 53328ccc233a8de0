"""pytest plugin of the suites: whose code, which tier, which exercises, and what it scored."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from shared.assignment import assignment

from . import advice
from .backend import Backend, BackendFault, InProcess, Reply, find_broken_files
from .places import folders_of, results_of
from .score_table import Scored, score_table

BACKEND = pytest.StashKey[Backend]()
TEST_FAILED = "the test itself failed"
PRINTED_CHARS = 4000  # of what the code under test printed, for the staff
NUMBER = re.compile(r"(?:(S)|([CE]\d+))\.\d+")  # S.2, C3.1, E5.2


class SolutionFailed(Exception):
    """The hand-in's code raised, ended or hung instead of answering a probe."""

    def __init__(self, message: str, traceback: str = "", own: list[str] | None = None):
        super().__init__(message)
        self.traceback = traceback  # for staff
        self.own = own or []  # the hand-in's own frames, for the student
        self.hung = False


@dataclass
class Record:
    """One test's outcome, as data."""

    id: str  # "public/C3.2" and the case of a parametrised test
    number: str
    exercise: str
    suite: str
    title: str
    max_score: float
    passed: bool
    skipped: bool
    message: str  # in one or a few lines; the public suite's may be shown to the student
    staff: str  # whatever else is known
    seconds: float
    tier: str
    hung: bool = False  # it ran out of time
    fault: str = ""  # why it could not be judged, where that is no fault of the hand-in


def pytest_addoption(parser):
    group = parser.getgroup("suites")
    group.addoption("--who", default="student", help="student, staff, or a folder")
    group.addoption("--tier", default="auto", choices=["auto", "virtual", "cuda"])
    group.addoption("--coding", default="", metavar="N", help="only these coding exercises: 3,7")
    group.addoption("--experiment", default="", metavar="N", help="only these experiments: 2")
    group.addoption("--test", default="", metavar="NUMBER", help="only this test: C7.3")
    group.addoption("--records", default="", metavar="FILE", help="outcomes as JSON lines")


def is_suite(path: Path) -> bool:
    return path.parent.name in ("public", "hidden") and path.parent.parent == _grader()


def _grader() -> Path:
    return Path(__file__).resolve().parents[1]


def suite_of(item) -> str:
    if item.path.parent.name == "hidden":
        return "hidden"
    number = getattr(item.function, "__number__", "")
    return {"S": "setup", "E": "experiments"}.get(number[:1], "public")


def exercise_of(item) -> str:
    """C3, E5 or S. Raises UsageError for a test that belongs to nothing."""
    number = getattr(item.function, "__number__", "")
    found = NUMBER.fullmatch(number)
    if not found:
        raise pytest.UsageError(f"{item.nodeid}: wants @number('C1.1'), has {number!r}")
    return found[1] or found[2]


def pytest_collection_modifyitems(config, items):
    mine = [i for i in items if is_suite(i.path)]
    cases: dict[str, int] = {}
    for item in mine:
        base = item.nodeid.split("[")[0]
        cases[base] = cases.get(base, 0) + 1
    for item in mine:
        base = item.nodeid.split("[")[0]
        item.max_score = getattr(item.function, "__weight__", 0) / cases[base]
    if not any("::" in str(argument) for argument in config.args):
        _check_weights(mine)
    _select(config, items, mine)
    outcomes = config.pluginmanager.get_plugin("outcomes")
    if outcomes and mine:
        outcomes.plan([asdict(_record(i, False, "")) for i in items if i in mine])


def _check_weights(items):
    """The tests' weights add up to the table's points, or nothing is run."""
    found: dict[tuple[str, str], float] = {}
    for item in items:
        key = (suite_of(item), exercise_of(item))
        found[key] = found.get(key, 0) + item.max_score
    for (suite, key), weight in found.items():
        points = 0 if key == "S" else assignment().exercise(key).points
        if abs(weight - points) > 1e-6:
            raise pytest.UsageError(
                f"{suite} tests of {key}: weights add up to {weight:g}, "
                f"shared/assignment.toml says {points:g}"
            )


def _select(config, items, mine):
    wanted = {f"C{n}" for n in re.findall(r"\d+", config.getoption("--coding"))}
    wanted |= {f"E{n}" for n in re.findall(r"\d+", config.getoption("--experiment"))}
    test = config.getoption("--test")
    if not wanted and not test:
        return
    out = [
        i
        for i in mine
        if (wanted and exercise_of(i) not in wanted) or (test and i.function.__number__ != test)
    ]
    config.hook.pytest_deselected(items=out)
    items[:] = [i for i in items if i not in out]


def pytest_configure(config):
    try:
        folders_of(config.getoption("--who"))
    except FileNotFoundError as error:
        raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput"):  # under xdist the controller keeps the outcomes
        config.pluginmanager.register(Outcomes(config.getoption("--records")), "outcomes")


def _tier(config) -> str:
    tier = config.getoption("--tier")
    if tier != "auto":
        return tier
    import torch

    return "cuda" if torch.cuda.is_available() else "virtual"


@pytest.fixture(scope="session")
def backend(request) -> Backend:
    """The judge's solver if one was given; else the hand-in's code in this process."""
    config = request.config
    if BACKEND not in config.stash:
        backend = InProcess(
            folders_of(config.getoption("--who")),
            _tier(config),
            results_of(config.getoption("--who")),
        )
        limit_s = assignment().limits.import_s
        find_broken_files(backend, lambda: backend.import_in_child(limit_s), backend.folders)
        config.stash[BACKEND] = backend
    return config.stash[BACKEND]


@pytest.fixture
def tier(backend) -> str:
    """ "virtual" or "cuda": where this test's probes run."""
    return backend.tier


@pytest.fixture(scope="session")
def secret() -> str:
    """What the suite's random amounts are derived from; the hidden suite has its own."""
    return "public"


@pytest.fixture
def draw(request, secret) -> random.Random:
    """The source of every amount, shape and seed of a test."""
    return random.Random(f"{secret}/{request.node.name}")


@pytest.fixture
def results(backend) -> Path:
    """The folder of the experiments' files; it need not exist."""
    return backend.results


@pytest.fixture
def probe(request, backend):
    """Calls a probe beside the hand-in's code: probe("prof.timed_calls", repeats=5)."""
    key = exercise_of(request.node)
    file = "" if key == "S" else assignment().exercise(key).file

    def call(name: str, /, **args):
        for problem in backend.broken.values():
            if problem.file == file or key == "S":
                raise SolutionFailed(problem.message, problem.traceback)
        reply = backend.observe(name, args, f"{suite_of(request.node)}/{key}")
        left = [words for words in reply.left if words not in backend.warned]
        request.node.left_changed = (*getattr(request.node, "left_changed", ()), *left)
        if reply.failed:
            raise failure_of(reply, file)
        return reply.value

    return call


def failure_of(reply: Reply, file: str) -> SolutionFailed:
    """The one line that says what the hand-in's code did instead of answering."""
    printed = f"\nprinted:\n{reply.printed[-PRINTED_CHARS:]}" if reply.printed else ""
    if reply.ended:
        hint = advice.on_end(reply.ended)
        words = f"{reply.where or file}: the code under test {reply.ended}. {hint}".strip()
        failure = SolutionFailed(words, f"{words}{printed}")
        failure.hung = reply.hung
        return failure
    raised = reply.raised
    where = f"{raised['file']}, line {raised['line']}" if raised["file"] else file
    said = f"{raised['type']}: {raised['message']}" if raised["message"] else raised["type"]
    own = raised["own"] if raised["type"] != "NotImplementedError" else []
    if not raised["file"] and (hint := advice.on_call(raised["type"], raised["message"])):
        said += f". {hint}"
    return SolutionFailed(f"{where}: {said}", raised["traceback"] + printed, own)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if not is_suite(item.path):
        return
    if report.when != "call" and report.passed:
        return
    message = staff = fault = ""
    left = "\n".join(dict.fromkeys(getattr(item, "left_changed", ())))
    if report.failed:
        staff = str(report.longrepr)
        message = _message(call.excinfo)
        if _is_our_fault(call.excinfo.value, report.when):
            fault = staff
            message = "Not judged: the test could not be run. Tell the course staff."
        elif left:
            message += f"\n{left}"
        report.longrepr = f"{item.function.__number__} {_title(item)}\n{message}"
        if isinstance(call.excinfo.value, SolutionFailed):
            staff = call.excinfo.value.traceback or staff
    elif report.skipped:
        message = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else ""
    else:
        message = left
    record = _record(item, report.passed, message)
    record.skipped = bool(report.skipped or fault)
    record.staff, record.fault = staff, fault
    record.hung = bool(report.failed and getattr(call.excinfo.value, "hung", False))
    record.seconds = round(report.duration, 3)
    report.user_properties.append(("record", asdict(record)))


def _is_our_fault(error: BaseException, when: str) -> bool:
    """Whether a test could not be run, rather than failed: its own set-up or the solver broke."""
    if isinstance(error, BackendFault):
        return True
    theirs = isinstance(error, SolutionFailed | AssertionError | pytest.fail.Exception)
    return when != "call" and not theirs


def _message(excinfo) -> str:
    """What may be shown: the assertion's own words, never pytest's account of the values."""
    error = excinfo.value
    if isinstance(error, SolutionFailed):
        return "\n".join([str(error), *(f"    {step}" for step in error.own)])
    if isinstance(error, AssertionError):
        said = str(error).split("\nassert ")[0].strip()
        return said or "the check failed, and has no words for it: tell the course staff"
    if excinfo.type.__name__ == "Failed":  # pytest.fail
        return str(error)
    return f"{TEST_FAILED} ({type(error).__name__}: {error}): tell the course staff"


def _title(item) -> str:
    return (item.function.__doc__ or item.name).strip().splitlines()[0]


def _record(item, passed: bool, message: str) -> Record:
    number = item.function.__number__
    case = item.name.partition("[")[2].rstrip("]")
    suite = suite_of(item)
    backend = item.config.stash.get(BACKEND, None)
    return Record(
        id=f"{suite}/{number}" + (f"[{case}]" if case else ""),
        number=number,
        exercise=exercise_of(item),
        suite=suite,
        title=_title(item),
        max_score=item.max_score,
        passed=passed,
        skipped=False,
        message=message,
        staff="",
        seconds=0.0,
        tier=backend.tier if backend else "",
    )


def scored(record: dict) -> Scored:
    return Scored(
        exercise=record["exercise"],
        score=record["max_score"] if record["passed"] else 0.0,
        max_score=record["max_score"],
        passed=record["passed"] or record["skipped"],
        judged=not record["skipped"],
    )


class Outcomes:
    """Collects the records of one session: for the score table, or as JSON lines for the judge."""

    def __init__(self, file: str):
        self.file = file
        self.records: list[dict] = []

    def pytest_runtest_logreport(self, report):
        for name, record in report.user_properties:
            if name == "record" and record not in self.records:
                self.records.append(record)
                self._append({"record": record})

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        if not self.records or self.file:
            return
        backend = terminalreporter.config.stash.get(BACKEND, None)
        for words in backend.warned if backend else ():
            terminalreporter.write_line(words)
        for record in self.records:
            if record["passed"] and record["message"]:
                terminalreporter.write_line(f"{record['number']} passed, but: {record['message']}")
        terminalreporter.write_line(score_table(map(scored, self.records), assignment()))

    def plan(self, records: list[dict]):
        """What is going to run; whatever does not report later was not judged."""
        self._append({"planned": records})

    def _append(self, line: dict):
        if self.file:
            with open(self.file, "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
