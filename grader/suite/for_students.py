"""pytest plugin of `make test` alone: failures in few words, and what a run says about points.

pytest's own account of failures is switched off for it (`--tb=no`); `make test ARGS=--tb=short` has
it back.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from shared.assignment import Exercise, assignment

from .places import released_folder
from .plugin import PRINTED_CHARS
from .score_table import number

WIDTH, INDENT = 100, " " * 6


def pytest_configure(config):
    for kind, option in (("coding", "C"), ("experiment", "E")):
        _check(kind, option, config.getoption(f"--{kind}"))


def _check(kind: str, option: str, wanted: str) -> None:
    """Raises UsageError unless `wanted` names exercises that have tests."""
    known = [str(e.number) for e in assignment().of_kind(kind) if e.points]
    found = re.split(r"[\s,]+", wanted.strip()) if wanted.strip() else []
    if wrong := [name for name in found if name.upper().removeprefix(option) not in known]:
        raise pytest.UsageError(
            f"{option}={wanted}: {kind.capitalize()} {wrong[0]} has no tests; give {option}="
            f"{known[0]} to {option}={known[-1]}, or several as {option}={known[0]},{known[-1]}"
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    config = terminalreporter.config
    if config.option.tbstyle == "no":
        stats = terminalreporter.stats
        reports = [*stats.get("failed", []), *stats.get("error", [])]
        for line in failures(reports):
            terminalreporter.write_line(line)
    result = yield
    outcomes = config.pluginmanager.get_plugin("outcomes")
    ran = [r for r in outcomes.records if not r["skipped"]] if outcomes else []
    if ran and all(r["tier"] == "virtual" for r in ran):
        terminalreporter.write_line(vouched_for(ran))
    return result


@dataclass
class Failed:
    """Tests of one exercise that failed for one reason."""

    record: dict  # of the first
    sections: list[tuple[str, str]]  # what the code printed: (heading, text)
    numbers: list[str] = field(default_factory=list)  # C1.2

    @property
    def says_all(self) -> bool:
        """Whether the message needs no word about what the test checks."""
        return "NotImplementedError" in self.record["message"] or len(self.numbers) > 1


def failures(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Lines about what failed: tests of an exercise that say the same are told of once."""
    groups: dict[tuple[str, str], Failed] = {}
    for report in reports:
        record = dict(report.user_properties).get("record")
        if record is None:  # no test of ours, or it could not even be collected
            yield from (report.nodeid, report.longreprtext)
            continue
        key = (record["exercise"], record["message"])
        group = groups.setdefault(key, Failed(record, report.sections))
        case = record["id"].partition("[")[1:]
        if record["number"] not in group.numbers:
            group.numbers.append(record["number"])
        elif case[0] and not group.says_all:
            group.record = record | {"id": record["id"].partition("[")[0]}  # all cases of it
    for group in groups.values():
        yield from _told(group)


def _told(group: Failed) -> Iterator[str]:
    message = group.record["message"].splitlines() or ["failed"]
    if group.says_all:
        message[0] = f"{_span(group.numbers)}  {message[0]}"
    else:
        case = group.record["id"].partition("[")[2].rstrip("]")
        yield f"{group.numbers[0]}  {group.record['title']}{f' ({case})' if case else ''}"
        message[0] = INDENT + message[0]
    for line in (message[0], *(INDENT + line for line in message[1:])):
        yield from textwrap.wrap(
            line,
            WIDTH,
            subsequent_indent=INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
    for heading, text in group.sections:
        if text.strip():
            kept = text.rstrip()[-PRINTED_CHARS:].splitlines()
            yield from (f"{INDENT}{heading.lower()}:", *(f"{INDENT}| {line}" for line in kept))


def _span(numbers: list[str]) -> str:
    return numbers[0] if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def vouched_for(records: list[dict]) -> str:
    """What a run without a GPU says about the points in it."""
    most = {e.key: 0.0 for e in assignment().exercises}
    for record in records:
        if record["exercise"] in most:
            most[record["exercise"]] += record["max_score"]
    ran = [e for e in assignment().exercises if most[e.key]]
    alike = [e for e in ran if not uses_gpu(e)]
    others = [e for e in ran if uses_gpu(e)]
    lines = []
    if alike:
        points = number(sum(most[e.key] for e in alike))
        lines.append(f"Vouched for: {points} points need no GPU ({_names(alike)}).")
    if others:
        points = number(sum(most[e.key] for e in others))
        lines.append(
            f"Judged on a virtual GPU: {points} points ({_names(others)}).\n"
            "Before you hand in, run `make test` once without TIER=virtual, on a real one."
        )
    return "\n".join(lines)


def uses_gpu(exercise: Exercise) -> bool:
    """Whether a test of it may find something else on a GPU: whether its file uses torch."""
    if exercise.kind != "coding":
        return False
    source = (released_folder() / exercise.file).read_text(encoding="utf-8")
    return bool(re.search(r"^\s*(?:import|from) torch\b", source, re.MULTILINE))


def _names(exercises: list[Exercise]) -> str:
    """ "C2, C3, E2 to E7"."""
    groups: list[list[Exercise]] = []
    for e in exercises:
        last = groups[-1][-1] if groups else None
        if last and (e.kind, e.number) == (last.kind, last.number + 1):
            groups[-1].append(e)
        else:
            groups.append([e])
    words = [g[0].key if len(g) == 1 else f"{g[0].key} to {g[-1].key}" for g in groups]
    return ", ".join(words)
