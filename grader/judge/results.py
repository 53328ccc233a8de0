"""What a grading run found, and the results.json that Gradescope reads it from.

Every test that is going to run is listed before the first one does, so a test that never reports
is in the results as one that was not judged. The file can be written after each test, and whatever
goes wrong it is valid: finite scores, bounded and harmless text, nothing of the hidden tests where
a student can read it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).with_name("gradescope.schema.json")
SUITES = ("setup", "public", "hidden", "experiments")
STATUSES = ("passed", "failed", "not_judged")
VISIBILITIES = ("hidden", "after_due_date", "after_published", "visible")
TEST_CHARS = 8_000  # of one test's text; a student reads the first and the last lines
TOTAL_CHARS = 90_000  # of everything that is shown together; Gradescope cuts at 100,000
HIDDEN_PASSED = "Passed."
HIDDEN_FAILED = (
    "Failed. This test checks the same property as the public test of the same number, with other "
    "shapes and seeds."
)
NOT_JUDGED = "Not judged: this test did not report. The course staff can see why."
GRADER_FAULT = (
    "Something went wrong in the grader, not in your work. Your hand-in is kept, and the course "
    "staff can see what happened; you need not hand in again."
)
ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~]|$)"
)
REVERSALS = re.compile("[\u202a-\u202e\u2066-\u2069\ufeff]")  # text that reads unlike it is written


def clean(text: str) -> str:
    """`text` without colours, cursor movements, control characters and broken Unicode."""
    text = ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = REVERSALS.sub("", text)
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text
    )


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of `text`, `limit` characters in all."""
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text) - limit} characters or more left out ...]\n"
    if limit <= len(mark):
        return text[:limit]
    tail = (limit - len(mark)) // 3
    return text[: limit - len(mark) - tail] + mark + text[len(text) - tail :]


def _text(value: Any) -> str:
    # Cut once before cleaning too: an assertion's message may have megabytes.
    return shorten(clean(shorten(str(value), 4 * TEST_CHARS)), TEST_CHARS)


@dataclass
class TestResult:
    """One test: what it scored, and what is said about it to whom.

    A score that is not a number between 0 and `max_score` counts as 0, and the staff are told.
    Raises ValueError for a suite, status, visibility or maximum that cannot be: a fault of ours.
    """

    number: str  # "C3.2"
    name: str  # one line; students read it
    exercise: str  # "C3"; "S" for Setup
    suite: str  # one of SUITES
    max_score: float
    score: float = 0.0
    status: str = "not_judged"  # one of STATUSES
    output: str = ""  # for the student; a test that is not visible shows a fixed sentence instead
    staff_output: str = ""  # for the staff alone
    visibility: str = ""  # Gradescope's word; by default hidden tests show once published
    case: str = ""  # of a parametrised test
    seconds: float = 0.0
    tier: str = ""  # "virtual" or "cuda"

    __test__ = False  # pytest: not a test class

    def __post_init__(self):
        self.number, self.case = clean(str(self.number)), clean(str(self.case))
        self.name = shorten(" ".join(clean(str(self.name)).split()), 200) or self.number
        if not self.number:
            raise ValueError("a test result needs a number")
        if self.suite not in SUITES:
            raise ValueError(f"{self.number}: suite {self.suite!r}; known: {SUITES}")
        if self.status not in STATUSES:
            raise ValueError(f"{self.number}: status {self.status!r}; known: {STATUSES}")
        self.visibility = self.visibility or (
            "after_published" if self.suite == "hidden" else "visible"
        )
        if self.visibility not in VISIBILITIES:
            raise ValueError(f"{self.number}: visibility {self.visibility!r}")
        if self.suite == "hidden" and self.visibility == "visible":
            raise ValueError(f"{self.number}: a hidden test cannot be visible")
        if not (_is_number(self.max_score) and self.max_score >= 0):
            raise ValueError(f"{self.number}: max_score {self.max_score!r}")
        self.max_score = float(self.max_score)
        self.output, self.staff_output = _text(self.output), _text(self.staff_output)
        if not (_is_number(self.score) and 0 <= self.score <= self.max_score + 1e-9):
            said = f"counted as 0: the score {self.score!r} is not within 0..{self.max_score:g}"
            self.staff_output = _text(f"{said}\n{self.staff_output}")
            self.score, self.status = 0.0, "failed"
        if self.status == "not_judged":
            self.score = 0.0
        self.score = min(float(self.score), self.max_score)
        self.seconds = self.seconds if _is_number(self.seconds) else 0.0

    @classmethod
    def of_record(cls, record: Mapping[str, Any], judged: bool = True) -> TestResult:
        """From what the suites' plugin reports of a test; not `judged`: of one yet to run."""
        status = "passed" if record["passed"] else "failed"
        if not judged or record["skipped"]:
            status = "not_judged"
        return cls(
            number=record["number"],
            name=record["title"],
            exercise=record["exercise"],
            suite=record["suite"],
            max_score=record["max_score"],
            score=record["max_score"] if status == "passed" else 0.0,
            status=status,
            output=record["message"],
            staff_output=record["staff"],
            case=record["id"].partition("[")[2].removesuffix("]"),
            seconds=record["seconds"],
            tier=record["tier"],
        )

    @property
    def key(self) -> tuple[str, str, str]:
        return self.suite, self.number, self.case

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def judged(self) -> bool:
        return self.status != "not_judged"

    def student_output(self) -> str:
        """What the student may read: of a test that is not visible, only whether it passed."""
        if not self.judged:
            return self.output if self.visibility == "visible" and self.output else NOT_JUDGED
        if self.visibility != "visible":
            return HIDDEN_PASSED if self.passed else HIDDEN_FAILED
        return self.output

    def all_for_staff(self) -> str:
        """What the staff read beside that."""
        own = "" if self.visibility == "visible" else self.output
        return "\n".join(part for part in (own, self.staff_output) if part)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


@dataclass
class Results:
    """All tests of one hand-in. Starts with the planned tests, none of them judged."""

    tests: list[TestResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with the hand-in, for the student
    output: str = ""  # more for the student, a score table for instance; nothing of hidden tests
    notes: list[str] = field(default_factory=list)  # for the staff
    leaderboard: list[dict[str, Any]] = field(default_factory=list)  # Gradescope's entries
    grader_fault: str = ""  # what went wrong on our side, for the staff; "": nothing
    provenance: dict[str, Any] = field(default_factory=dict)  # hashes, versions, tier, machine
    seconds: float = 0.0

    def __post_init__(self):
        keys = [test.key for test in self.tests]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"planned more than once: {sorted(twice)}")

    def record(self, result: TestResult) -> None:
        """Puts a test's result in the place of the planned one.

        Raises ValueError for a test that was not planned, or was for other points.
        """
        for at, planned in enumerate(self.tests):
            if planned.key == result.key:
                if abs(planned.max_score - result.max_score) > 1e-9:
                    raise ValueError(
                        f"{result.number}: planned for {planned.max_score:g} points, "
                        f"reported with {result.max_score:g}"
                    )
                self.tests[at] = result
                return
        raise ValueError(f"{result.suite} test {result.number} {result.case} was not planned")

    @property
    def score(self) -> float:
        return round(math.fsum(test.score for test in self.tests), 6)

    @property
    def max_score(self) -> float:
        return round(math.fsum(test.max_score for test in self.tests), 6)

    def visible_score(self) -> tuple[float, float]:
        """(score, maximum) of the tests that the student sees at once."""
        seen = [test for test in self.tests if test.visibility == "visible"]
        return (
            round(math.fsum(t.score for t in seen), 6),
            round(math.fsum(t.max_score for t in seen), 6),
        )

    def student_output(self) -> str:
        """The text at the top of what the student reads."""
        parts = [GRADER_FAULT] if self.grader_fault else []
        score, most = self.visible_score()
        if most:
            parts.append(f"Public: {round(score, 2):g}/{round(most, 2):g}")
        if any(test.suite == "hidden" for test in self.tests):
            parts.append("The hidden tests' points are shown when the grades are published.")
        unjudged = sum(
            not t.judged and t.visibility == "visible" and t.max_score > 0 for t in self.tests
        )
        if unjudged and not self.grader_fault:
            parts.append(f"{unjudged} tests were not judged (yet); they are marked below.")
        if self.problems:
            parts.append("\nYour hand-in:\n" + "\n".join(f"- {p}" for p in self.problems))
        if self.output:
            parts.append("\n" + self.output)
        return _text("\n".join(parts))

    def to_gradescope(self) -> dict[str, Any]:
        """The content of results.json."""
        shown = _share([self.student_output()] + [t.student_output() for t in self.tests])
        kept = _share([_text("\n".join(self.notes))] + [t.all_for_staff() for t in self.tests])
        return {
            "score": self.score,
            "execution_time": round(max(0.0, self.seconds), 3),
            "output": shown[0],
            # As text: the default would let a hand-in's messages act as HTML.
            "output_format": "text",
            "test_output_format": "text",
            "test_name_format": "text",
            "stdout_visibility": "hidden",
            "extra_data": {
                "grader_fault": _text(self.grader_fault),
                "notes": kept[0],
                "provenance": _data(self.provenance),
            },
            **({"leaderboard": self.leaderboard} if self.leaderboard else {}),
            "tests": [
                _test(test, *texts)
                for test, *texts in zip(self.tests, shown[1:], kept[1:], strict=True)
            ],
        }


def _test(test: TestResult, shown: str, kept: str) -> dict[str, Any]:
    case = f" [{test.case}]" if test.case and test.visibility == "visible" else ""
    status = {"status": test.status} if test.judged else {}  # Gradescope knows no third one
    return {
        "number": test.number,
        "name": f"{'Hidden: ' if test.suite == 'hidden' else ''}{test.name}{case}",
        "score": test.score,
        "max_score": test.max_score,
        **status,
        "output": shown,
        "visibility": test.visibility,
        "tags": [test.suite, test.exercise] + ([] if test.judged else ["not_judged"]),
        "extra_data": {
            "status": test.status,
            "case": test.case,
            "staff_output": kept,
            "seconds": round(test.seconds, 3),
            "tier": test.tier,
        },
    }


def _share(texts: list[str], total: int = TOTAL_CHARS) -> list[str]:
    """Shortens the longest of `texts` until all together have at most `total` characters."""
    left, limit = total, 0
    for done, length in enumerate(sorted(map(len, texts))):
        limit = left // (len(texts) - done)
        if length > limit:
            return [shorten(text, limit) for text in texts]
        left -= length
    return texts


def _data(value: Any, depth: int = 6) -> Any:
    """`value` as what JSON can hold."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth and isinstance(value, Mapping):
        return {_text(key): _data(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list | tuple | set):
        return [_data(item, depth - 1) for item in value]
    return _text(value)


def without_results(
    reason: str,
    planned: Iterable[TestResult] = (),
    *,
    grader_fault: str = "",
    notes: Iterable[str] = (),
    provenance: Mapping[str, Any] | None = None,
) -> Results:
    """Results of a run in which no test could be judged.

    reason: for the student, with what to do; every visible test repeats it.
    grader_fault: for the staff, when the fault is ours (a traceback): the student reads that.
    """
    return Results(
        tests=[_unjudged(test, reason, bool(grader_fault)) for test in planned],
        problems=[reason] if reason else [],
        notes=list(notes),
        grader_fault=grader_fault,
        provenance=dict(provenance or {}),
    )


def _unjudged(test: TestResult, reason: str, fault_is_ours: bool) -> TestResult:
    return TestResult(
        number=test.number,
        name=test.name,
        exercise=test.exercise,
        suite=test.suite,
        max_score=test.max_score,
        status="not_judged" if fault_is_ours else "failed",
        output=f"Not judged: {reason}" if reason else "",
        visibility=test.visibility,
        case=test.case,
        tier=test.tier,
    )


@cache
def _validator() -> jsonschema.protocols.Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def write_results(results: Results, path: Path | str) -> dict[str, Any]:
    """Writes `results` to `path` and returns what was written; cheap enough after every test.

    A reader sees the old file or the new one, never half of one. Raises
    jsonschema.ValidationError, leaving the old file, if the content breaks Gradescope's rules.
    """
    path = Path(path)
    content = results.to_gradescope()
    _validator().validate(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)  # whoever collects the results may be another user
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return content
