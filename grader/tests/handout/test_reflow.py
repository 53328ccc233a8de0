"""Filling paragraphs changes where lines break, and nothing else."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from staff.handout.reflow import reflow

WORD = st.text(alphabet="abcxyz", min_size=1, max_size=9)
ODD = st.sampled_from(["-", "12.", "#", ">", "`a b c`", "(a)", "5", "ms", "*so*", "**not so**"])
PARAGRAPH = st.lists(WORD | ODD, min_size=1, max_size=40).map(lambda w: "so " + " ".join(w))


def html(markdown: str) -> str:
    rendered = MarkdownIt("commonmark").enable("table").render(markdown)
    return re.sub(r"\s+", " ", rendered)


@given(st.lists(PARAGRAPH, min_size=1, max_size=4))
def test_paragraphs_mean_the_same(paragraphs):
    before = "\n\n".join(paragraphs)
    assert html(reflow(before, 40)) == html(before)


@given(st.lists(PARAGRAPH, min_size=1, max_size=4))
def test_filling_twice_is_filling_once(paragraphs):
    once = reflow("\n\n".join(paragraphs), 40)
    assert reflow(once, 40) == once


def test_lines_are_filled():
    assert reflow("one\ntwo\nthree four", 9) == "one two\nthree\nfour"


def test_a_number_is_not_parted_from_its_unit():
    assert reflow("it takes 12 ms", 12) == "it takes\n12 ms"


def test_a_line_does_not_begin_a_list_by_accident():
    assert reflow("the ridge is at 209. It is", 16) == "the ridge is\nat 209. It is"
    assert (
        reflow("the ridge is at\n209. It is the same", 100) == "the ridge is at 209. It is the same"
    )


def test_lists_and_boxes_keep_their_margins():
    assert reflow("- one two\n  three\n- four", 8) == "- one\n  two\n  three\n- four"
    assert reflow("> one two\n> three", 9) == "> one two\n> three"
    assert reflow("1. one\n2. two", 20) == "1. one\n2. two"


def test_code_tables_and_headings_stay():
    kept = (
        "# A heading\n\n```\na  b\n\n\nc\n```\n\n| a | b |\n| --- | --- |\n\n    x = 1   # code\n"
    )
    assert reflow(kept, 10) == kept


def test_empty_lines_do_not_pile_up():
    assert reflow("a\n\n\n\nb\n", 10) == "a\n\nb\n"
