"""Which rules for points find which mistake, and what they say of honest results."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.assignment import assignment

from ...rules.completeness import files
from ...rules.experiment import load
from ...rules.rule import all_rules
from . import inputs, operations, recordings, steps  # noqa: F401 (they register their mistakes)
from .mistake import MISTAKES, Mistake

EXPERIMENTS = [e.key for e in assignment().of_kind("experiment") if e.points]


@dataclass(frozen=True)
class Found:
    """What one mistake, made in one honest set, set off."""

    mistake: Mistake
    source: str
    messages: dict[str, list[str]]  # rule, or "files", -> what it says; those that say something

    @property
    def caught(self) -> bool:
        return self.mistake.found_by in self.messages


def findings(folder: Path, experiment: str) -> dict[str, list[str]]:
    """What each rule says of an experiment's files; empty if it loses no point."""
    results = load(folder)
    said = {"files": list(files(results, experiment))}
    said |= {one.name: one.messages(results, experiment) for one in all_rules()}
    return {name: messages for name, messages in said.items() if messages}


def honest_findings(source: Path, experiment: str) -> dict[str, list[str]]:
    """The same of an honest set, untouched."""
    with tempfile.TemporaryDirectory() as scratch:
        return findings(copy_with_plots(source, Path(scratch) / "a1"), experiment)


def has_tables(experiment: str, source: Path) -> bool:
    """Whether a set has all tables of an experiment; not every set has every recording."""
    tables = [f for f in assignment().exercise(experiment).files if f.endswith(".csv")]
    return all((source / file).is_file() for file in tables)


def make(mistake: Mistake, source: Path) -> Found:
    """Makes one mistake in a copy of an honest set."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = copy_with_plots(source, Path(scratch) / "a1")
        mistake.make(folder)
        return Found(mistake, source.name, findings(folder, mistake.experiment))


def make_all(sources: Iterable[Path]) -> list[Found]:
    """Every mistake in every honest set that has the experiment."""
    return [
        make(m, source) for source in sources for m in MISTAKES if has_tables(m.experiment, source)
    ]


def copy_with_plots(source: Path, folder: Path) -> Path:
    """A copy of an honest set, which is kept without its plots, with some picture for each."""
    shutil.copytree(source, folder)
    for experiment in assignment().of_kind("experiment"):
        for name in experiment.artifacts:
            if name.endswith(".png") and not (folder / name).exists():
                (folder / name).write_bytes(blank_png(800, 600))
    return folder


def blank_png(width: int, height: int) -> bytes:
    """A black picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
