"""What a hand-in still lacks, read from its files. Nothing of it is imported or run.

Used by `handin.py`, so it needs nothing but Python 3.9 or newer.
"""

from __future__ import annotations

import ast
import platform
import re
import warnings

PLACEHOLDERS = {"", "your answer", "your answer here", "your name", "your name here", "todo"}
CONFLICT_END = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)", re.MULTILINE)
CONFLICT_ANY = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)|^={7}\r?$", re.MULTILINE)


def a_few(names: list[str], shown: int = 4) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def remarks(facts: dict, files: dict[str, bytes], left_out: dict[str, str]) -> list[str]:
    """What is not complete, a sentence each, in the order of the assignment.

    facts: of the assignment (`assignment.json`). files: what is handed in, by name. left_out: names
    that are there but cannot be handed in; nothing is said about those here.
    """
    found = [
        f"{name} is missing: `git checkout -- {name}` brings back the released one"
        for name in facts["files"]
        if name not in files and name not in left_out
    ]
    trees = {}
    for name, data in files.items():
        if name.endswith(".py"):
            trees[name], faults = _parsed(name, data)
            found += faults
        marker = CONFLICT_ANY.search(data) if name.endswith(".csv") else None
        if name.endswith(".md"):  # seven equals signs underline a heading there
            marker = CONFLICT_END.search(data)
        if marker:
            found.append(_conflict(name, data.count(b"\n", 0, marker.start()) + 1))
    for exercise in facts["exercises"]:
        if exercise["kind"] == "coding" and trees.get(exercise["file"]):
            found += _not_implemented(exercise, trees[exercise["file"]])
        elif exercise["kind"] == "experiment":
            found += _not_run(exercise, facts["results"], files, left_out)
    written = [e["number"] for e in facts["exercises"] if e["kind"] == "written"]
    for name in facts["files"]:
        if name.endswith(".md") and name in files and written:
            text = files[name].decode("utf-8-sig", "replace")
            found += [f"{name}: {what}" for what in unanswered(text, written)]
    folded: dict[str, str] = {}
    for name in files:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            found.append(f"{other} and {name} differ in case only, so neither counts: rename one")
    return found


def _conflict(name: str, line: int) -> str:
    return f"{name}, line {line}: a merge conflict was left in; resolve it (`git diff` shows it)"


def _parsed(name: str, data: bytes) -> tuple[ast.Module | None, list[str]]:
    """The syntax tree of a Python file, or what is wrong with it. Nothing is imported or run."""
    marker = CONFLICT_END.search(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data), []
    except SyntaxError as error:
        if marker:
            return None, [_conflict(name, data.count(b"\n", 0, marker.start()) + 1)]
        line, what = error.lineno or 1, error.msg
        at = data.splitlines()[line - 1 : line]
        if at and CONFLICT_ANY.match(at[0]):
            return None, [_conflict(name, line)]
    except (ValueError, RecursionError, MemoryError) as error:
        line, what = data.count(b"\n", 0, max(0, data.find(b"\0"))) + 1, str(error)
    python = f"Python {platform.python_version()}"
    return None, [f"{name}, line {line}: {python} cannot read it ({what}); none of it will count"]


def _find(tree: ast.AST, dotted: str) -> ast.AST | None:
    """The function (`Class.method` for a method) called `dotted`; None if nothing defines it."""
    first, _, rest = dotted.partition(".")
    found = None
    for node in ast.walk(tree):
        named = getattr(node, "name", None) == first or getattr(node, "asname", None) == first
        stored = isinstance(node, ast.Name) and node.id == first
        if named or (stored and isinstance(node.ctx, ast.Store)):
            found = node
    return _find(found, rest) if found is not None and rest else found


def _not_implemented(exercise: dict, tree: ast.Module) -> list[str]:
    todo, gone = [], []
    for name in exercise["implements"]:
        node = _find(tree, name)
        if node is None:
            gone.append(name)
        elif any(_raises_not_implemented(child) for child in ast.walk(node)):
            todo.append(name)
    where = f"{exercise['name']}: "
    found = [f"{where}{', '.join(todo)} in {exercise['file']}: not implemented yet"] if todo else []
    return found + ([f"{where}{exercise['file']} has no {', '.join(gone)}"] if gone else [])


def _raises_not_implemented(node: ast.AST) -> bool:
    if not isinstance(node, ast.Raise):
        return False
    raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _not_run(exercise: dict, results: str, files: dict, left_out: dict) -> list[str]:
    named = {name: f"{results}/{name}" for name in exercise["artifacts"]}
    gone = [n for n, path in named.items() if path not in files and path not in left_out]
    empty = [n for n, path in named.items() if files.get(path, b"-").strip() == b""]
    run = f" (run {exercise['command']})" if exercise["command"] else ""
    found = [f"{exercise['name']}: not in {results}: {a_few(gone)}{run}"] if gone else []
    return found + ([f"{exercise['name']}: empty: {a_few(empty)}{run}"] if empty else [])


def unanswered(text: str, questions: list[int]) -> list[str]:
    """What has no answer in the file of written answers.

    The file's conventions: a line `Name:`, a heading `## Question N` for each question (a title may
    follow) and, for a question in parts, `### (a)` below it; any other `##` section wants an answer
    too, unless its heading says (optional). Comments `<!-- -->`, quotations (`>`), empty tables and
    the placeholder `_Your answer_` are no answer.
    """
    text = re.sub(r"<!--.*?(?:-->|\Z)", "", text.replace("\r\n", "\n"), flags=re.DOTALL)
    name = re.search(r"^[*_# ]*name[*_ ]*:[*_ ]*(.*)$", text, re.IGNORECASE | re.MULTILINE)
    found = [] if name and _is_answer(name[1]) else ["your name is missing (the line `Name:`)"]
    sections = _split(text, "## ")
    for number in questions:
        heading = re.compile(rf"(?:written )?question {number}\b", re.IGNORECASE)
        mine = [body for title, body in sections if heading.match(title)]
        if not mine:
            found.append(f"there is no heading `## Question {number}`")
            continue
        parts = _split(mine[0], "### ")
        empty = [title for title, body in parts if not _has_answer(body)]
        if not _has_answer(re.sub(r"^###.*$", "", mine[0], flags=re.MULTILINE)):
            found.append(f"Question {number} has no answer yet")
        elif empty:
            found.append(f"Question {number}: no answer under {a_few(empty)}")
    for title, body in sections:
        is_question = re.match(r"(?:written )?question \d", title, re.IGNORECASE)
        if not is_question and "optional" not in title.lower() and not _has_answer(body):
            found.append(f"nothing stands under `{title}`")
    return found


def _split(text: str, mark: str) -> list[tuple[str, str]]:
    """(title, body) of each section whose heading begins with `mark`, code blocks left alone."""
    sections: list[tuple[str, list[str]]] = []
    fenced = False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        if line.startswith(mark) and not fenced:
            sections.append((line[len(mark) :].strip(" #"), []))
        elif sections:
            sections[-1][1].append(line)
    return [(title, "\n".join(body)) for title, body in sections]


def _is_answer(line: str) -> bool:
    return line.strip(" \t*_()[].:…").casefold() not in PLACEHOLDERS


def _has_answer(body: str) -> bool:
    lines = [line for line in body.split("\n") if not line.lstrip().startswith((">", "###"))]
    return any(_is_answer(line) and line.strip("|-: \t`~") for line in lines)
