"""The handout as one HTML page, made by markdown-it-py: nothing to download, readable in print."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --faint: #667; --rule: #d8dae0;
        --code: #f5f6f8; --coding: #2f6fb2; --experiment: #2f8f5b; --written: #b2622f;
        --challenge: #7a56b0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e6; --paper: #17181b; --faint: #9aa; --rule: #3a3d44; --code: #22242a; } }
body { margin: 0 auto; padding: 2rem 1.25rem 6rem; max-width: 50rem; color: var(--ink);
       background: var(--paper); font: 1.0625rem/1.6 Charter, Georgia, "Times New Roman", serif; }
h1, h2, h3, nav, th, blockquote > p:first-child { font-family: system-ui, sans-serif; }
h1 { margin-top: 3.5rem; line-height: 1.2; } h2 { margin-top: 2.5rem; }
h1:first-child { margin-top: 0; }
a { color: var(--coding); }
nav { border: 1px solid var(--rule); border-radius: .4rem; padding: .75rem 1.25rem;
      font-size: .9rem; line-height: 1.5; }
nav ul { margin: 0; padding-left: 1.2rem; } nav > ul { padding-left: .3rem; list-style: none; }
code, pre { font: .86em/1.5 ui-monospace, Menlo, Consolas, monospace; }
code { overflow-wrap: break-word; background: var(--code);
       padding: .1em .25em; border-radius: .2em; }
pre { background: var(--code); padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto; }
pre code { background: none; padding: 0; font-size: .92em; }
td code { white-space: nowrap; }
table { border-collapse: collapse; display: block; margin: 1.25rem 0;
        overflow-x: auto; font-size: .93em; }
th, td { border-bottom: 1px solid var(--rule); padding: .3rem .8rem .3rem 0; text-align: left;
         vertical-align: top; }
th:empty { padding: 0; }
blockquote { margin: 1.75rem 0; padding: .1rem 1.25rem; border-left: .3rem solid var(--faint);
             background: color-mix(in srgb, var(--faint) 7%, transparent); }
blockquote.coding { border-color: var(--coding); }
blockquote.experiment { border-color: var(--experiment); }
blockquote.written { border-color: var(--written); }
blockquote.challenge { border-color: var(--challenge); }
@media print { body { max-width: none; font-size: 10.5pt; } nav { display: none; }
  pre { white-space: pre-wrap; } blockquote, pre, tr { break-inside: avoid; } }
"""
KINDS = ("coding", "experiment", "written", "challenge")  # a box is of the kind that it begins with


def _code(text: str, language: str, _attrs: str) -> str:
    """Colours for Python; transcripts stay plain."""
    if language != "python":
        return ""  # markdown-it escapes it itself
    return highlight(text, get_lexer_by_name("python"), HtmlFormatter(nowrap=True))


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _anchors(tokens: list[Token]) -> list[tuple[int, str, str]]:
    """Gives each heading an id. Returns (level, id, title) of all of them."""
    seen: list[tuple[int, str, str]] = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            slug = base = _slug(inline.content)
            count = 1
            while slug in {one[1] for one in seen}:
                count += 1
                slug = f"{base}-{count}"
            token.attrSet("id", slug)
            seen.append((int(token.tag[1]), slug, inline.content))
    return seen


def _boxes(tokens: list[Token]) -> None:
    """Gives each box the class of its kind, and an id: `coding-exercise-3`."""
    for i, token in enumerate(tokens):
        if token.type == "blockquote_open":
            title = re.match(r"\*\*(.+?)\*\*", tokens[i + 2].content)
            kind = re.match(r"\w+", title[1])[0].lower() if title else ""
            if kind in KINDS:
                name = title[1] if kind == "challenge" else title[1].split(":")[0]
                token.attrSet("class", kind)
                token.attrSet("id", _slug(name))


def _contents(headings: list[tuple[int, str, str]]) -> str:
    """Links to the first two levels; the page's title is left out."""
    lines, open_ = ["<nav><ul>"], False
    for level, slug, title in headings[1:]:
        link = f'<li><a href="#{slug}">{escape(title)}</a></li>'
        if level == 1:
            lines.append(("</ul>" if open_ else "") + link)
            open_ = False
        elif level == 2:
            lines.append(("" if open_ else "<ul>") + link)
            open_ = True
    return "\n".join([*lines, "</ul>" if open_ else "", "</ul></nav>"])


def page(markdown: str) -> str:
    """A complete HTML document."""
    md = MarkdownIt("commonmark", {"highlight": _code}).enable("table")
    tokens = md.parse(re.sub(r"\A<!--.*?-->\s*", "", markdown, flags=re.DOTALL))
    headings = _anchors(tokens)
    _boxes(tokens)
    body = md.renderer.render(tokens, md.options, {})
    title = headings[0][2]
    first, rest = body.split("</h1>", 1)
    colours = HtmlFormatter(style="friendly").get_style_defs("pre")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}\n"
        f"@media (prefers-color-scheme: light) {{ {colours} }}\n</style>\n</head>\n<body>\n"
        f"{first}</h1>\n{_contents(headings)}\n{rest}</body>\n</html>\n"
    )
