"""The handout, taken apart for the tests: boxes, commands, names in code quotation marks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from grader.suite.places import ROOT

HANDOUT = ROOT / "student" / "HANDOUT.md"
BOX = re.compile(r"\*\*(Coding Exercise|Experiment|Written Question) (\d+): (.+?)\*\* \((.+?)\)$")
KIND = {"Coding Exercise": "C", "Experiment": "E", "Written Question": "W"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Box:
    """A numbered box: its first line, and the rest of it as one line."""

    key: str  # C3
    title: str
    remark: str  # what stands in brackets: points, time
    body: str


@cache
def text() -> str:
    return HANDOUT.read_text(encoding="utf-8")


def unquoted(markdown: str) -> str:
    """The text with the margins of boxes taken off."""
    return re.sub(r"^> ?", "", markdown, flags=re.MULTILINE)


def boxes() -> list[Box]:
    """Every numbered box, in the order of the text."""
    found = []
    for block in re.findall(r"(?:^>.*\n?)+", text(), flags=re.MULTILINE):
        first, _, body = unquoted(block).strip().partition("\n\n")
        if start := BOX.match(" ".join(first.split())):
            kind, number, title, remark = start.groups()
            found.append(Box(f"{KIND[kind]}{number}", title, remark, " ".join(body.split())))
    return found


def parts(body: str) -> list[str]:
    """The letters of a question's parts, in order: ["a", "b"]; none if it has no parts."""
    return re.findall(r"(?:^| )\(([a-e])\) ", body)


def commands() -> list[str]:
    """Every command that a reader is told to type: after a prompt, or quoted within a sentence."""
    plain = unquoted(text())
    typed = []
    for language, code in FENCE.findall(plain):
        if language == "console":
            joined = code.replace("\\\n", " ")
            typed += [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    prose = FENCE.sub("", plain)
    quoted = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))
    typed += [s for s in quoted if re.match(r"(?:make|python|git|a1/nsys\.sh) \S", s)]
    return list(dict.fromkeys(typed))


def names() -> list[str]:
    """Everything in code quotation marks outside code blocks."""
    prose = FENCE.sub("", unquoted(text()))
    return list(dict.fromkeys(" ".join(s.split()) for s in re.findall(r"`([^`]+)`", prose)))
