"""The template of the written answers, as students receive it."""

from __future__ import annotations

from grader.suite.places import ROOT
from shared.assignment import assignment
from shared.completeness import unanswered

TEMPLATE = (ROOT / "student/a1/answers.md").read_text(encoding="utf-8")
NUMBERS = [e.number for e in assignment().of_kind("written")]


def test_every_question_of_the_template_is_unanswered():
    said = "\n".join(unanswered(TEMPLATE, NUMBERS))
    assert all(f"Question {n}" in said for n in NUMBERS), said
    assert "AI tools" in said


def test_an_answered_template_is_complete():
    answered = TEMPLATE.replace("_Your answer_", "At M = 64 it reaches 24 TFLOP/s.")
    assert unanswered(answered.replace("_Your name_", "Ada"), NUMBERS) == []
