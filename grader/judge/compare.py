"""Where a handed-in file differs from the released one outside its exercises, for the staff."""

from __future__ import annotations

import ast
import difflib

from shared.assignment import assignment

from ..suite.places import released_folder

SHOWN_LINES = 20


def model_notes(files: dict[str, bytes]) -> list[str]:
    """A note for each file in which something was changed that no exercise asks for.

    files: the hand-in's files, with LF line ends. What differs runs as handed in.
    """
    table = assignment()
    notes = []
    for file in table.modules.values():
        released = released_folder() / file
        if file not in files or not released.is_file():
            continue
        ours, theirs = released.read_text("utf-8"), files[file].decode("utf-8", "replace")
        own = {n for e in table.of_kind("coding") if e.file == file for n in e.implements}
        try:
            changed = _outside(ours, theirs, own)
        except SyntaxError:
            continue  # said elsewhere, with its line
        if changed:
            more = f" and {len(changed) - SHOWN_LINES} more" if len(changed) > SHOWN_LINES else ""
            notes.append(
                f"{file} differs from the release outside the exercises, and ran as handed in:\n"
                + "\n".join(changed[:SHOWN_LINES])
                + more
            )
    return notes


def _outside(ours: str, theirs: str, own: set[str]) -> list[str]:
    """Released lines that were removed, rewritten or added to, outside the functions called `own`.

    New functions and imports are no change: they are welcome. Inside a function of an exercise that
    is only partly to be written (a method of the model), the lines given stay.
    """
    given, handed = ours.splitlines(), theirs.splitlines()
    free = _stub_lines(ours, own)
    inside = _inner_gaps(ours) - free - {n - 1 for n in free}
    matcher = difflib.SequenceMatcher(None, given, handed, autojunk=False)
    found = []
    for tag, first, last, first_new, last_new in matcher.get_opcodes():
        new = [n for n in range(first_new, last_new) if _says_something(handed[n])]
        if tag == "insert" and first in inside and new:
            found.append(f"  added after released line {first}: {given[first - 1].strip()[:100]}")
            found += [f"    now line {n + 1}: {handed[n].strip()[:100]}" for n in new[:3]]
        if tag in ("equal", "insert"):
            continue
        lost = [n for n in range(first, last) if n + 1 not in free and given[n].strip()]
        if lost:
            found.append(f"  released line {lost[0] + 1}: {given[lost[0]].strip()[:100]}")
            found += [
                f"    now line {n + 1}: {handed[n].strip()[:100]}"
                for n in range(first_new, min(last_new, first_new + 3))
            ]
    return found


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _inner_gaps(source: str) -> set[int]:
    """Lines (from 1) of functions behind which there is still more of the same function."""
    return {
        number
        for _, node in _functions(ast.parse(source))
        for number in range(node.lineno, node.end_lineno)
    }


def _stub_lines(source: str, own: set[str]) -> set[int]:
    """Lines (from 1) that an exercise asks to be replaced.

    A function whose whole body is to be written may be rewritten from its `def` on; of one that
    is given but for a branch, only that branch.
    """
    free: set[int] = set()
    for name, node in _functions(ast.parse(source)):
        if name not in own:
            continue
        body = node.body[1:] if ast.get_docstring(node) else node.body
        if len(body) == 1 and isinstance(body[0], ast.Raise):
            free |= set(range(node.lineno, node.end_lineno + 1))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Raise) and "NotImplementedError" in ast.unparse(inner):
                free |= set(range(inner.lineno, inner.end_lineno + 1))
    return free


def _functions(tree: ast.Module):
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner
