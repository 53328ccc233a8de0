"""Puts a short file of changed functions over the staff solution, so that a hand-in results.

A change names, after its docstring, the file it is for (`# file: olmoe/prof.py`), and then holds
top-level functions and classes. One that the solution has too replaces it (of a class, only the
methods given); whatever else is there is added below the solution's imports.
"""

from __future__ import annotations

import ast
import re

PART = re.compile(r"^# file: (\S+)\s*$", re.MULTILINE)


class ChangeError(ValueError):
    """A change that does not fit the solution it is for."""


def parts_of(change: str) -> dict[str, str]:
    """The change's source by the file that it is for. Raises ChangeError if there is none."""
    pieces = PART.split(change)
    if len(pieces) < 3:
        raise ChangeError("no line `# file: PATH` says which of the files is changed")
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def compose(solution: str, change: str) -> str:
    """`solution` with the functions and methods of `change` in place of its own."""
    lines = solution.splitlines(keepends=True)
    existing = _definitions(ast.parse(solution))
    edits: list[tuple[int, int, str]] = []  # first line, last line (1-based), text
    added: list[str] = []
    future = "from __future__ import annotations"
    for node in ast.parse(change).body:
        text = _text(change, node)
        own = existing.get(getattr(node, "name", None))
        if own is None:
            if text.strip() != future:
                added.append(text)
        elif isinstance(node, ast.ClassDef) and isinstance(own, ast.ClassDef):
            edits += _methods(change, node, own)
        else:
            edits.append((*_span(own), text))
    if added:
        line = _end_of_imports(ast.parse(solution))
        edits.append((line + 1, line, "\n" + "\n\n".join(added) + "\n\n"))
    for first, last, text in sorted(edits, reverse=True):
        lines[first - 1 : last] = [text.rstrip("\n") + "\n"]
    composed = "".join(lines)
    ast.parse(composed)
    return composed


def _methods(change: str, node: ast.ClassDef, own: ast.ClassDef) -> list[tuple[int, int, str]]:
    methods = _definitions(own)
    edits = []
    for method in node.body:
        name = getattr(method, "name", None)
        if name in methods:
            edits.append((*_span(methods[name]), _text(change, method)))
        elif name:
            line = own.body[-1].end_lineno
            edits.append((line + 1, line, "\n" + _text(change, method)))
    return edits


def _definitions(node) -> dict[str, ast.stmt]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {n.name: n for n in node.body if isinstance(n, kinds)}


def _span(node) -> tuple[int, int]:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return first, node.end_lineno


def _text(source: str, node) -> str:
    first, last = _span(node)
    return "".join(source.splitlines(keepends=True)[first - 1 : last])


def _end_of_imports(tree: ast.Module) -> int:
    """The last line of the block of imports at the top, or of the docstring before it."""
    last = 0
    for position, node in enumerate(tree.body):
        docstring = position == 0 and isinstance(node, ast.Expr)
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        last = node.end_lineno
    return last
