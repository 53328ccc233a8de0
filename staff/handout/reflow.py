"""Fills the paragraphs of a Markdown text to one width, and leaves everything else as it is.

Values of different lengths are inserted into the text, so its lines are broken afterwards. Tables,
headings, code (fenced or indented) and comments are not touched; quotations and list items are
filled within their margins.
"""

from __future__ import annotations

import re

WIDTH = 100
FENCE = re.compile(r"(?:```|~~~)")
ITEM = re.compile(r"(?:[-*]|\d+\.) +")
STARTS = re.compile(r"[-+*>#=]+|\d+\.")
UNIT = re.compile(r"(?:ms|s|µs|MHz|W|GB|MB|GiB|MiB|TFLOP/s|GB/s)(?!\w)")
KEPT = re.compile(r"#{1,6} |\||<!--|(?: {4}|\t)\S|\{%|\{#|---$")


def reflow(text: str, width: int = WIDTH) -> str:
    """The same Markdown with its paragraphs filled, and never two empty lines in a row."""
    out: list[str] = []
    paragraph: list[str] = []
    margins = ("", "")
    fenced = listed = False  # listed: in a list item, so that a number begins the next one

    def flush() -> None:
        nonlocal paragraph
        out.extend(_filled(" ".join(paragraph), *margins, width))
        paragraph = []

    for line in text.split("\n"):
        quote, body = _quotation(line)
        if FENCE.match(body.lstrip()):
            flush()
            fenced = not fenced
            out.append(line.rstrip())
        elif fenced:
            out.append(line)
        elif not body.strip():
            flush()
            if out and out[-1] != quote.rstrip():
                out.append(quote.rstrip())
        elif (item := ITEM.match(body)) and not (paragraph and body[0].isdigit() and not listed):
            flush()
            listed = True
            margins = (quote + item[0], quote + " " * len(item[0]))
            paragraph = [body[item.end() :].strip()]
        elif KEPT.match(body) and not (paragraph and body.startswith(" ")):
            flush()
            out.append(line.rstrip())
        elif paragraph:  # an indented line continues a list item, and is no code there
            paragraph.append(body.strip())
        else:
            indent = re.match(r" *", body)[0]
            listed = False
            margins = (quote + indent, quote + indent)
            paragraph = [body.strip()]
    flush()
    return "\n".join(out)


def _quotation(line: str) -> tuple[str, str]:
    """What marks a line as quoted, and the rest."""
    mark = re.match(r"(?:> ?)+", line)
    return (mark[0].rstrip() + " ", line[mark.end() :]) if mark else ("", line)


def _filled(text: str, first: str, rest: str, width: int) -> list[str]:
    lines: list[str] = []
    line = first
    empty = True
    for word in _words(text):
        if not empty and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return [*lines, line] if not empty else lines


def _words(text: str) -> list[str]:
    """Pieces between which a line may break: not inside code or a template's expression."""
    whole = re.sub(r"\{\{.*?\}\}|`[^`]+`", lambda m: re.sub(r"\s", "\0", m[0]), text)
    words = [word.replace("\0", " ") for word in whole.split()]
    # A line begins neither with a unit nor with what Markdown takes for a list or a heading.
    safe: list[str] = []
    for word in words:
        if safe and (STARTS.fullmatch(word) or (UNIT.match(word) and safe[-1][-1].isdigit())):
            safe[-1] += " " + word
        else:
            safe.append(word)
    return safe
