"""The assignment's table (`assignment.toml`) as typed, checked records."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("assignment.toml")
LETTER = {"coding": "C", "experiment": "E", "written": "W"}  # C3 is Coding Exercise 3
RECORDING_FILES = (
    "{}_ranges.csv",
    "{}_nvtx_gpu_proj_trace.csv",
    "{}_cuda_gpu_kern_sum.csv",
    "{}_cuda_api_sum.csv",
)


@dataclass(frozen=True)
class Exercise:
    """One numbered box of the assignment."""

    kind: str  # "coding", "experiment" or "written"
    number: int
    title: str
    points: float  # of the public tests; a coding exercise has as many again in the hidden ones
    file: str = ""  # coding: the file that holds it
    implements: tuple[str, ...] = ()  # coding: the functions, `Class.method` for a method
    command: str = ""  # experiment: what to run
    artifacts: tuple[str, ...] = ()  # experiment: files under the results folder
    recordings: tuple[str, ...] = ()  # experiment: recordings, each of which leaves RECORDING_FILES

    def __post_init__(self):
        if self.kind not in LETTER:
            raise ValueError(f"{TABLE.name}: exercise kind {self.kind!r}; known: {list(LETTER)}")
        if self.kind == "coding" and not (self.file and self.implements):
            raise ValueError(f"{TABLE.name}: {self.key} names no file or no functions")

    @property
    def key(self) -> str:
        """Short name: C3, E5, W1."""
        return f"{LETTER[self.kind]}{self.number}"

    @property
    def name(self) -> str:
        """Name in the score table: `Coding 3`."""
        return f"{self.kind.capitalize()} {self.number}"

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that an experiment leaves in the results folder."""
        of_recordings = (f.format(r) for r in self.recordings for f in RECORDING_FILES)
        return (*self.artifacts, *of_recordings)


@dataclass(frozen=True)
class HandinRules:
    """What a hand-in may hold."""

    results: str
    results_suffixes: tuple[str, ...]
    challenges: str
    challenges_suffixes: tuple[str, ...]
    max_entries: int
    max_source_bytes: int
    max_artifact_bytes: int
    max_total_bytes: int


@dataclass(frozen=True)
class Limits:
    """What one test may use on the machine that scores."""

    import_s: float
    test_s: float
    suite_s: float
    cpu_s: int
    resident_mib: int
    printed_bytes: int
    printed_mib: int
    written_mib: int
    written_files: int
    open_files: int
    processes: int


@dataclass(frozen=True)
class Suite:
    """A group of tests that is shown, or not shown, as one."""

    title: str
    visibility: str  # Gradescope's word


@dataclass(frozen=True)
class Assignment:
    """The whole table."""

    name: str
    title: str
    course: str
    term: str
    release: str
    gpu: str
    files: tuple[str, ...]
    handin: HandinRules
    limits: Limits
    suites: dict[str, Suite]
    exercises: tuple[Exercise, ...]

    @property
    def modules(self) -> dict[str, str]:
        """The handed-in Python files by module name: {"olmoe.prof": "olmoe/prof.py"}."""
        return {f.removesuffix(".py").replace("/", "."): f for f in self.files if f.endswith(".py")}

    def exercise(self, key: str) -> Exercise:
        """The exercise called `key` ("C3"). Raises KeyError."""
        for exercise in self.exercises:
            if exercise.key == key:
                return exercise
        raise KeyError(f"no exercise {key!r} in {TABLE.name}")

    def of_kind(self, kind: str) -> list[Exercise]:
        return [e for e in self.exercises if e.kind == kind]


def _tuples(table: dict) -> dict:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in table.items()}


@cache
def assignment(path: Path = TABLE) -> Assignment:
    """Reads the table. Raises TypeError for a key that nobody knows."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return Assignment(
        **_tuples(table["assignment"]),
        handin=HandinRules(**_tuples(table["handin"])),
        limits=Limits(**table["limits"]),
        suites={name: Suite(**suite) for name, suite in table["suites"].items()},
        exercises=tuple(Exercise(**_tuples(e)) for e in table["exercise"]),
    )
