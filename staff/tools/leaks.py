"""Looks through a built release for anything that students must not get.

A release is made of named files alone, so a leak is a name too many in the table, or a line too
many in a file that is released. Every line of the staff's files is a canary:

- of a solution region, of the staff's texts and data: any line longer than trivial;
- of other code, where two programmers may write one line alike: a long line, or three in a row.

The parts of the solved files outside their regions are what students are given: no canaries.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shared.assignment import assignment
from shared.gpus import COURSE_GPU
from staff.tools.stubs import read_regions

PRIVATE = ("staff", "grader")
# What of these is everybody's. Not decided by the table of the release: it may be what is wrong.
PUBLIC = (
    "grader/__init__.py", "grader/exact.py", "grader/truth.py",
    "grader/suite/", "grader/gpu/", "grader/probes/", "grader/public/", "grader/rules/",
    f"staff/truth/{COURSE_GPU.slug}/a1_truth.csv",
)  # fmt: skip
CODE = (".py", ".sh")
TEXT = (".md", ".toml", ".csv", ".json", ".jsonl", ".txt", ".tex", ".html")
TRIVIAL, LONG, ROW = 30, 64, 3
FIGURES_TRIVIAL = 16  # a row of a hidden table is short
CACHES = (
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    ".git",
    ".venv",
    ".ipynb_checkpoints",
)
# The handout prints from these, and it alone may.
PRINTED = ("staff/handout/", "staff/results/", "grader/tests/rules/")
OWN_TESTS = "grader/tests/"  # of the project: no solution, but three lines in a row are a copy
PRINTED_IN = ("HANDOUT.md", "HANDOUT.html")
# Lines that stand in a staff file and in a released one by chance or of necessity, and why.
ALLOWED = {
    "event = torch.cuda.Event(enable_timing=True)": "how PyTorch's events are made",
    "parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])": "argparse",
    "start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))": "a pair of events",
    'def observe(self, probe: str, args: dict, group: str = "") -> Reply:': "one interface",
    "optimizer.state.clear() # a moment may be missing, and AdamW would not notice": "bench code",
    "model = optimizer = None # before the next one takes their memory": "bench code",
    "logits = model(micro_batch.tokens, micro_batch.seqs, recompute=recompute)": "a model's call",
}


@dataclass(frozen=True)
class Leak:
    """What was found, and where."""

    file: str  # of the release
    line: int  # 0: the file as a whole
    what: str

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}: {self.what}"


@dataclass
class Canaries:
    """Lines that no release may hold."""

    always: dict[str, str] = field(default_factory=dict)  # line: where it comes from
    often: dict[str, dict[str, int]] = field(default_factory=dict)  # line: {file: line number}
    printed: dict[str, str] = field(default_factory=dict)  # fine in the handout
    secrets: list[str] = field(default_factory=list)


def normal(line: str) -> str:
    """A line without its indentation and with single blanks."""
    return " ".join(line.split())


def canaries(root: Path) -> Canaries:
    """All of them, of the repository at `root`."""
    given: set[str] = set()
    found = Canaries()
    solved = set()
    for file in assignment().modules.values():
        path = root / "staff" / file
        solved.add(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        inside = set()
        for region in read_regions("\n".join(lines) + "\n", file):
            inside |= set(range(region.begin, region.end + 1))
        given |= {normal(line) for n, line in enumerate(lines, 1) if n not in inside}
        for n in sorted(inside):
            if len(line := normal(lines[n - 1])) >= TRIVIAL:
                found.always.setdefault(line, f"the solution in staff/{file}, line {n}")
    for path in private_files(root):
        if path not in solved:
            _of_file(path, path.relative_to(root).as_posix(), found)
    for kind in (found.always, found.often, found.printed):
        for line in given | ALLOWED.keys():
            kind.pop(line, None)
    term = tomllib.loads((root / "staff" / "term.toml").read_text(encoding="utf-8"))
    found.secrets = [value for key, value in term.items() if key != "term"]
    return found


def private_files(root: Path) -> Iterator[Path]:
    """The staff's files of text."""
    for top in PRIVATE:
        for path in sorted((root / top).rglob("*")):
            name = path.relative_to(root)
            if path.suffix not in CODE + TEXT or set(name.parts) & set(CACHES):
                continue
            if not name.as_posix().startswith(PUBLIC) and path.is_file():
                yield path


def _of_file(path: Path, name: str, found: Canaries) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    figures = path.suffix in (".csv", ".jsonl")
    always = found.printed if name.startswith(PRINTED) else found.always
    for n, line in enumerate(map(normal, text.splitlines()), 1):
        if re.match(r"(from|import) [\w.]+", line) and path.suffix == ".py":
            continue
        enough = len(line) >= (FIGURES_TRIVIAL if figures else TRIVIAL)
        if figures and not re.search(r"\d", line):
            continue  # the names of columns are everybody's
        if path.suffix == ".md" and line.startswith("#"):
            continue  # and so are headings: model answers stand under those of the template
        long = len(line) >= LONG and not name.startswith(OWN_TESTS)
        if (path.suffix in TEXT and enough) or long:
            always.setdefault(line, f"{name}, line {n}")
        elif enough and always is found.always:
            found.often.setdefault(line, {}).setdefault(name, n)


def leaks(folder: Path, expected: Iterable[str], birds: Canaries) -> list[Leak]:
    """What is wrong with the release in `folder`, which may hold the files `expected` alone."""
    expected = set(expected)
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if cache := set(path.relative_to(folder).parts) & set(CACHES):
            if path.name in cache:
                found.append(Leak(name, 0, "a cache or a history has no place in a release"))
        elif path.is_symlink():
            found.append(Leak(name, 0, "a link"))
        elif path.suffix in (".pyc", ".pyo"):
            found.append(Leak(name, 0, "bytecode, which tells what it was compiled from"))
        elif path.is_file():
            if name not in expected:
                found.append(Leak(name, 0, "not in the table of the release (grader/release.py)"))
            found += leaks_in(name, path.read_bytes(), birds)
    return found


def leaks_in(name: str, data: bytes, birds: Canaries) -> list[Leak]:
    """What a file, called `name` in the release, holds that it must not."""
    found = [
        Leak(name, data[: data.find(secret.encode())].count(b"\n") + 1, "the term's secret")
        for secret in birds.secrets
        if secret.encode() in data
    ]
    row: dict[str, tuple[int, str]] = {}  # staff file: how many lines in a row, and the first
    for n, line in enumerate(map(normal, data.decode("utf-8", "replace").splitlines()), 1):
        if line in birds.always:
            found.append(Leak(name, n, f"a line of {birds.always[line]}: {line[:60]}"))
        if line in birds.printed and name not in PRINTED_IN:
            found.append(Leak(name, n, f"a line of {birds.printed[line]}: {line[:60]}"))
        if len(line) < TRIVIAL:
            continue  # blank lines and brackets neither make a row nor break it
        files = birds.often.get(line, {})
        row = {f: (row[f][0] + 1 if f in row else 1, line) for f in files}
        for file, (count, _) in row.items():
            if count == ROW:
                found.append(Leak(name, n, f"{ROW} lines in a row of {file}, line {files[file]}"))
    return found


def history_leaks(folder: Path, birds: Canaries) -> list[Leak]:
    """What the git history of an existing release holds: it is published with every commit."""
    listed = _git(folder, "rev-list", "--objects", "--all").splitlines()
    named = {}
    for line in listed:
        blob, _, name = line.partition(" ")
        if name:
            named.setdefault(blob, name)
    found = []
    for blob, name in named.items():
        if name.split("/")[0] in ("staff", "grader"):
            found.append(Leak(name, 0, "the history of this folder is not a release's"))
            break
        if _git(folder, "cat-file", "-t", blob).strip() == "blob":
            data = subprocess.run(
                ["git", "-C", str(folder), "cat-file", "blob", blob],
                capture_output=True,
                check=True,
            ).stdout
            secrets = Canaries(secrets=birds.secrets)
            found += [
                Leak(f"{name} (in the history)", e.line, e.what)
                for e in leaks_in(name, data, secrets)
            ]
    return found


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    ).stdout
