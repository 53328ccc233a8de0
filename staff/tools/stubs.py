#!/usr/bin/env python
"""Makes the students' stubs under student/ from the solved files under staff/.

    python staff/tools/stubs.py            write the stubs
    python staff/tools/stubs.py --check    say which committed stub differs, and change nothing

The solved files are the Python files of `[assignment] files` in shared/assignment.toml. What lies
between a line `# BEGIN SOLUTION` and the next line `# END SOLUTION` is the solution:

- inside a function it becomes `raise NotImplementedError("...")`, at the markers' indentation;
- outside any function (constants and helpers that only the solution needs) it is dropped.

The build fails, naming file and lines, on markers that are nested, unclosed, lone, misspelt, empty
or not of one function; on a function of the table that has no region, and a region of a function
that the table does not know; and on a stub that does not compile, that uses a name which went with
a solution, or that still shows a line of one. Then nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import re
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this file is run as a script

from shared.assignment import Assignment, assignment  # noqa: E402

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
TRIVIAL_CHARACTERS = 30  # a shorter line may stand in a solution and in a stub by chance
# Functions that students are given as a model for a solution, whose lines it may therefore repeat.
SHOWN = {"olmoe/train.py": ("train_step",)}


class StubError(Exception):
    """A solved file from which no stub can be made; the message says where and what to do."""


@dataclass(frozen=True)
class Region:
    """One solution. Lines are counted from 1; `begin` and `end` are those of its markers."""

    begin: int
    end: int
    indent: str
    function: str | None  # `name` or `Class.name`; None outside any function


def read_regions(source: str, file: str) -> list[Region]:
    """The solutions of `source`. Raises StubError for a marker or a region that is not right."""
    lines = source.splitlines()
    try:
        tree = ast.parse(source)
        comments = _comments(source)
    except (SyntaxError, tokenize.TokenError) as error:
        raise StubError(f"{file}: cannot be parsed: {error}") from None
    functions = list(_functions(tree))
    regions, open_at = [], None
    for row, column, text in comments:
        indent = lines[row - 1][:column]
        if text in (BEGIN, END) and indent.strip():
            raise _error(file, lines, row, "a marker stands on a line of its own")
        if text not in (BEGIN, END):
            if _looks_like_marker(text):
                what = f"misspelt marker {text!r}; write {BEGIN!r} or {END!r}"
                raise _error(file, lines, row, what)
        elif text == BEGIN:
            if open_at is not None:
                what = f"nested: the region of line {open_at} is still open"
                raise _error(file, lines, row, what)
            open_at = row
        elif open_at is None:
            raise _error(file, lines, row, f"lone {END!r}: no region is open")
        else:
            regions.append(_region(file, lines, functions, open_at, row))
            open_at = None
    if open_at is not None:
        raise _error(file, lines, open_at, f"unclosed: no {END!r} follows")
    return regions


def make_stub(source: str, file: str, table: Assignment) -> str:
    """The stub of a solved file. `file` is its name in the table, such as "olmoe/prof.py"."""
    regions = read_regions(source, file)
    exercises = {f: e for e in table.of_kind("coding") if e.file == file for f in e.implements}
    if missing := exercises.keys() - {r.function for r in regions}:
        raise StubError(
            f"{file}: no solution is marked in {', '.join(sorted(missing))}, "
            "which shared/assignment.toml has as an exercise"
        )
    lines = source.splitlines()
    for region in reversed(regions):
        stub = []
        if region.function is not None:
            if region.function not in exercises:
                what = f"{region.function} is no exercise of shared/assignment.toml"
                raise _error(file, lines, region.begin, what)
            todo = f"{exercises[region.function].name}: {region.function}"
            stub = [f'{region.indent}raise NotImplementedError("{todo}")']
        lines[region.begin - 1 : region.end] = stub
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).rstrip("\n") + "\n"
    try:
        tree = ast.parse(text)
        compile(text, file, "exec")
    except SyntaxError as error:
        raise StubError(f"{file}: the stub does not compile: {error}") from None
    if left := sorted(_gone_names(source, regions, tree)):
        raise StubError(f"{file}: the stub uses {', '.join(left)}, which went with a solution")
    return text


def check_leaks(sources: dict[str, str], stubs: dict[str, str]) -> None:
    """Raises StubError if a line of a solution, longer than trivial, still stands in any stub."""
    where = {}
    for file, stub in stubs.items():
        shown = set(_lines_of(stub, SHOWN.get(file, ())))
        for number, line in enumerate(stub.splitlines(), start=1):
            if number not in shown:
                where.setdefault(line.strip(), (file, number))
    for file, source in sources.items():
        lines = source.splitlines()
        for region in read_regions(source, file):
            for number in range(region.begin + 1, region.end):
                line = lines[number - 1].strip()
                if len(line) < TRIVIAL_CHARACTERS or line not in where:
                    continue
                stub_file, stub_line = where[line]
                what = (
                    f"this line of a solution also stands in the stub of {stub_file}, line "
                    f"{stub_line}: put it between markers there, or, where students are meant to "
                    "see it, add its function to SHOWN"
                )
                raise _error(file, lines, number, what)


def build(root: Path = ROOT) -> dict[str, str]:
    """All stubs: their text by the name of the file. Raises StubError."""
    table = assignment(root / "shared" / "assignment.toml")
    sources = {}
    for file in table.modules.values():
        solved = root / "staff" / file
        if not solved.is_file():
            raise StubError(f"staff/{file} is missing: shared/assignment.toml has it as solved")
        sources[file] = solved.read_text(encoding="utf-8")
    stubs = {file: make_stub(source, file, table) for file, source in sources.items()}
    check_leaks(sources, stubs)
    return stubs


def outdated(stubs: dict[str, str], root: Path = ROOT) -> list[str]:
    """The first lines of the difference, for every committed stub that is not the built one."""
    differences = []
    for file, text in stubs.items():
        path = root / "student" / file
        committed = path.read_text(encoding="utf-8") if path.is_file() else ""
        if committed != text:
            a, b = committed.splitlines(), text.splitlines()
            name = f"student/{file}"
            diff = list(difflib.unified_diff(a, b, name, f"from staff/{file}", lineterm="", n=1))
            more = [f"... and {len(diff) - 12} lines more"] if len(diff) > 12 else []
            differences.append("\n".join([*diff[:12], *more]))
    return differences


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    check = parser.parse_args(arguments).check
    try:
        stubs = build(root)
    except StubError as error:
        print(error, file=sys.stderr)
        return 1
    if check:
        differences = outdated(stubs, root)
        for difference in differences:
            print(difference, file=sys.stderr)
        if differences:
            print(
                "These stubs are not what staff/ makes. Edit the file under staff/, never the stub,"
                " then run: python staff/tools/stubs.py",
                file=sys.stderr,
            )
        return 1 if differences else 0
    for file, text in stubs.items():
        path = root / "student" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        print(f"wrote student/{file}")
    return 0


def _comments(source: str) -> list[tuple[int, int, str]]:
    """(row, column, text) of every comment; text that looks like one inside a string is not."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(*t.start, t.string.rstrip()) for t in tokens if t.type == tokenize.COMMENT]


def _looks_like_marker(text: str) -> bool:
    words = " ".join(re.sub(r"[\W_]+", " ", text).upper().split())
    if re.search(r"(BEGIN|END)\W*SOLUTION", text):
        return True
    # 0.8: one or two letters wrong, missing or too many, but not "END CONDITION".
    close = difflib.SequenceMatcher
    return any(close(None, words, m).ratio() >= 0.8 for m in ("BEGIN SOLUTION", "END SOLUTION"))


def _functions(tree: ast.AST, prefix: str = "") -> Iterable[tuple[str, int, int]]:
    """(name, first line, last line) of functions and methods; those inside one belong to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node.lineno, node.end_lineno
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        else:
            yield from _functions(node, prefix)


def _region(file: str, lines: list[str], functions: list, begin: int, end: int) -> Region:
    first, last = lines[begin - 1], lines[end - 1]
    indent = first[: len(first) - len(first.lstrip())]
    body = [line for line in lines[begin : end - 1] if line.strip()]
    if not any(not line.lstrip().startswith("#") for line in body):
        raise _error(file, lines, begin, "empty: there is no code between the markers")
    if last[: len(last) - len(last.lstrip())] != indent:
        raise _error(file, lines, end, f"indented otherwise than its {BEGIN!r} in line {begin}")
    if not all(line.startswith(indent) for line in body):
        raise _error(file, lines, begin, "a line up to its end is indented less than the marker")
    # A comment after the last statement belongs, for ast, to no function: the code inside decides.
    code = (n for n in range(begin + 1, end) if lines[n - 1].strip())
    code = [n for n in code if not lines[n - 1].lstrip().startswith("#")]
    around = [f for f in functions if f[1] < begin]
    owners = {next((name for name, _, stop in around if n <= stop), None) for n in code}
    if len(owners) != 1:
        raise _error(file, lines, begin, "begins in one function and ends in another")
    return Region(begin, end, indent, owners.pop())


def _gone_names(source: str, regions: list[Region], stub: ast.AST) -> set[str]:
    """Names that the dropped regions bound at the top level and that the stub still uses."""
    gone = set()
    for node in ast.parse(source).body:
        inside = any(r.function is None and r.begin < node.lineno < r.end for r in regions)
        if not inside:
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            gone.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            gone |= {(a.asname or a.name).split(".")[0] for a in node.names}
        else:
            stored = (n for n in ast.walk(node) if isinstance(n, ast.Name))
            gone |= {n.id for n in stored if isinstance(n.ctx, ast.Store)}
    names = [n for n in ast.walk(stub) if isinstance(n, ast.Name)]
    bound = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    return gone & {n.id for n in names if isinstance(n.ctx, ast.Load)} - bound


def _lines_of(source: str, functions: Iterable[str]) -> Iterable[int]:
    for name, first, last in _functions(ast.parse(source)):
        if name in functions:
            yield from range(first, last + 1)


def _error(file: str, lines: list[str], row: int, what: str) -> StubError:
    around = range(max(1, row - 2), min(len(lines), row + 2) + 1)
    shown = "\n".join(f"  {'>' if n == row else ' '} {n:4} {lines[n - 1]}" for n in around)
    return StubError(f"{file}, line {row}: {what}\n{shown}")


if __name__ == "__main__":
    sys.exit(main())
