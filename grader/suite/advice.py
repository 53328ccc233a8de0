"""What to tell a student whose file cannot be imported, or whose code ended the process."""

from __future__ import annotations

import re
from collections.abc import Iterable

MARKER = re.compile(r"(?:<{7}|>{7})(?: |$)|={7}$")
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+) in ([\w<>.]+)', re.MULTILINE)
CONTRACT = "Keep the names and the arguments that the release gives."


def on_import(error: str, said: str, source: str) -> str:  # noqa: PLR0911
    """What to do about an exception at import; "" when its own words will do.

    error: the exception's type. said: its message. source: the text of the file it came from.
    """
    if source.lstrip().startswith("{") and re.search(r'"(?:cells|nbformat)"\s*:', source):
        return "This is a Jupyter notebook, not a Python file: put the code itself into the file."
    marked = [n for n, line in enumerate(source.splitlines(), 1) if MARKER.match(line)]
    if error == "SyntaxError" and marked:
        return (
            f"A merge conflict was left in, from line {marked[0]} on: keep one of the two versions "
            "and delete the lines of markers."
        )
    if error == "TabError" or (error == "IndentationError" and "\t" in source):
        return "Indent with spaces alone."
    if error == "ModuleNotFoundError":
        return (
            "Where hand-ins are scored there is nothing but Python's own library and the packages "
            "of the course's environment: do without it."
        )
    if error == "SystemExit":
        return "A file that is imported must not exit."
    if error == "ImportError" and "cannot import name" in said:
        return "Is that name still there, and do the two files not import each other?"
    return ""


def on_call(error: str, said: str) -> str:
    """What to do about an exception that came from calling the code under test, not from in it."""
    renamed = error == "AttributeError" and said.startswith("module ")
    return CONTRACT if renamed or (error == "TypeError" and "argument" in said) else ""


def on_end(ended: str) -> str:
    """What to do about code that did not answer, by the words that say how it ended."""
    for words, advice in (
        ("took longer", "Is there a loop that never ends?"),
        ("processor time", "Is there a loop that never ends?"),
        ("SIGXCPU", "Is there a loop that never ends?"),
        ("of memory", "What does it keep, or make larger than it need be?"),
        ("processes", "It need not start any."),
        ("printed more", "Print less: what is printed is not looked at."),
        ("wrote more", "It need not write any file."),
        ("signal SIG", "What ends so is called from Python but written in C: which call is it?"),
        ("ended the", "It must return or raise, not exit."),
    ):
        if words in ended:
            return advice
    return ""


def place(dump: str, files: Iterable[tuple[str, str]]) -> str:
    """Where the code was when it ended: "olmoe/prof.py, line 3", or "".

    dump: what Python's faulthandler wrote, the latest call first; untrusted.
    files: the path of each handed-in file, and the name to call it by.
    """
    names = dict(files)
    for path, line, _function in FRAME.findall(dump):
        if path in names:
            return f"{names[path]}, line {int(line[:9])}"
    return ""
