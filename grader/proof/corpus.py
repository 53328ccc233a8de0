"""The wrong and the right solutions, found by looking into their folders."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from shared.assignment import assignment

from ..suite.places import ROOT
from .compose import ChangeError, compose, parts_of

HERE = Path(__file__).resolve().parent
FIELD = re.compile(
    r"^(exercise|caught by|says|points|public points|hidden points):\s*(.+?)\s*$", re.MULTILINE
)


@dataclass(frozen=True)
class Case:
    """One solution of one exercise, right or wrong."""

    name: str  # "wrong/c1_counts_warm_up"
    wrong: bool
    title: str  # its docstring's first line
    exercise: str  # "C1"
    caught_by: str  # wrong: the public test that must fail, "C1.2"
    says: str  # wrong: a piece of that test's message
    points: dict[str, float]  # what it gets in a suite, for an exercise graded by degrees
    change: str  # source

    def files(self) -> dict[str, bytes]:
        """The hand-in: the staff solution of all files with this change in it."""
        files = solution()
        for file, part in parts_of(self.change).items():
            if file not in files:
                raise ChangeError(f"{self.name}: {file} is not one of the files of a hand-in")
            files[file] = compose(files[file].decode(), part).encode()
        return files


def solution() -> dict[str, bytes]:
    """The staff solution as a hand-in's sources; files that it lacks are left out."""
    staff = ROOT / "staff"
    return {f: (staff / f).read_bytes() for f in assignment().files if (staff / f).is_file()}


def stubs() -> dict[str, bytes]:
    """What students start from, as a hand-in's sources."""
    student = ROOT / "student"
    return {f: (student / f).read_bytes() for f in assignment().files if (student / f).is_file()}


def cases(only: set[str] | None = None) -> list[Case]:
    """All cases, in the order of their exercises. Raises ChangeError for one ill described."""
    found = [_case(path) for kind in ("wrong", "right") for path in (HERE / kind).glob("*.py")]
    found = [c for c in found if not only or c.exercise in only]
    return sorted(found, key=lambda c: (c.exercise, c.name))


def _case(path: Path) -> Case:
    change = path.read_text(encoding="utf-8")
    name = f"{path.parent.name}/{path.stem}"
    described = ast.get_docstring(ast.parse(change)) or ""
    fields = dict(FIELD.findall(described))
    wrong = path.parent.name == "wrong"
    points = {
        suite: float(fields[key])
        for suite in ("public", "hidden")
        for key in (f"{suite} points", "points")[::-1]
        if key in fields
    }
    needed = ["exercise"] + (["caught by", "says"] if wrong and not points else [])
    missing = [field for field in needed if field not in fields]
    if missing or not described:
        raise ChangeError(f"{name}: its docstring wants {', '.join(missing) or 'a first line'}")
    assignment().exercise(fields["exercise"])
    return Case(
        name=name,
        wrong=wrong,
        title=described.splitlines()[0],
        exercise=fields["exercise"],
        caught_by=fields.get("caught by", ""),
        says=fields.get("says", ""),
        points=points,
        change=change,
    )
