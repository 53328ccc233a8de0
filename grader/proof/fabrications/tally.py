"""Makes the fabrications and counts who notes what."""

from __future__ import annotations

import inspect
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ...rules.experiment import Results, load
from ...staff_rules.note import Note
from ...staff_rules.report import notes
from . import copies, edits, formulas, timer_aware
from .forge import Folder, copy
from .honest import another_occasion

Fabrication = Callable[[Folder, Folder], None]
CLASSMATES = 4  # whom each hand-in is compared with


@dataclass
class Tally:
    """How many sets of one kind were noted, and by which rules."""

    name: str
    total: int = 0
    noted: int = 0  # with a note at all
    most: int = 0  # notes on one set
    rules: Counter = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def add(self, found: list[Note], without: list[Note] | None = None) -> None:
        """Count a set's notes, but not those of rules that noted its honest origin, `without`."""
        known = {note.rule for note in without or []}
        found = [note for note in found if note.rule not in known]
        self.total += 1
        self.noted += bool(found)
        self.most = max(self.most, len(found))
        self.rules.update({note.rule for note in found})
        self.lines += [note.line() for note in found]


def fabrications(*modules: ModuleType) -> dict[str, Fabrication]:
    """The fabrications by name, in the order of their modules."""
    return {
        name: function
        for module in modules or (formulas, edits, copies)
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and len(inspect.signature(function).parameters) == 2  # (the forger's folder, a classmate's)
    }


def timer_aware_fabrications() -> dict[str, Fabrication]:
    return fabrications(timer_aware)


@dataclass
class Course:
    """A class of honest students, and the staff's results, drawn from one measured set."""

    source: Path
    folder: Path
    seed: int = 0
    _made: dict[str, Folder] = field(default_factory=dict)
    _read: dict[str, Results] = field(default_factory=dict)

    def student(self, number: int, quiet: bool = False) -> Folder:
        """Honest results of a student."""
        name = f"student{number}{'-quiet' if quiet else ''}"
        if name not in self._made:
            self._made[name] = another_occasion(
                self.source, self.folder / name, 1000 * self.seed + number, quiet
            )
        return self._made[name]

    def forged(self, name: str, fabrication: Fabrication, number: int) -> Folder:
        """What student `number` hands in, who has an honest set and the next student's."""
        mine = self.student(number)
        seed = 1000 * self.seed + number
        folder = copy(mine.path, self.folder / f"{name}-{number}", seed)
        fabrication(folder, self.student((number + 1) % CLASSMATES))
        return folder

    def notes(self, folder: Folder, number: int) -> list[Note]:
        """What the rules say, with the class and the staff to compare with."""
        for i in range(CLASSMATES):
            self._read.setdefault(f"student {i}", load(self.student(i).path))
        self._read.setdefault("", load(self.source))
        others = {n: r for n, r in self._read.items() if n not in ("", f"student {number}")}
        return notes(load(folder.path), others, self._read[""])


def tally_honest(source: Path, count: int, seed: int = 0, quiet: bool = False) -> Tally:
    """`count` drawn honest sets."""
    tally = Tally(f"drawn from {source.name}{', quiet' if quiet else ''}")
    with tempfile.TemporaryDirectory() as folder:
        course = Course(source, Path(folder), seed)
        for number in range(CLASSMATES, CLASSMATES + count):
            tally.add(course.notes(course.student(number, quiet), number))
    return tally


def tally_forged(
    source: Path, chosen: dict[str, Fabrication], each: int, seed: int = 0
) -> list[Tally]:
    """Every fabrication, by `each` students."""
    tallies = []
    with tempfile.TemporaryDirectory() as folder:
        course = Course(source, Path(folder), seed)
        honest = [course.notes(course.student(number), number) for number in range(each)]
        for name, fabrication in chosen.items():
            tally = Tally(name)
            for number in range(each):
                forged = course.forged(name, fabrication, number)
                tally.add(course.notes(forged, number), honest[number])
            tallies.append(tally)
    return tallies
