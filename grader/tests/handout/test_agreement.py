"""The handout, the answers, the rubric and the tables say the same."""

from __future__ import annotations

import re

import pytest

from grader.suite.places import ROOT
from shared import artifact_schema
from shared.assignment import RECORDING_FILES, assignment
from shared.completeness import unanswered

from .reading import boxes, names, parts, text, unquoted

TABLE = assignment()
BOXES = {box.key: box for box in boxes()}
TEMPLATE = (ROOT / "student/a1/answers.md").read_text(encoding="utf-8")
ANSWERS = (ROOT / "staff/answers.md").read_text(encoding="utf-8")
RUBRIC = (ROOT / "staff/rubric.md").read_text(encoding="utf-8")
WRITTEN = TABLE.of_kind("written")


def questions(markdown: str) -> dict[int, tuple[str, str]]:
    """Number -> (title, body) of each `## Question N: title`."""
    pieces = re.split(r"^## Question (\d+): (.+)$", markdown, flags=re.MULTILINE)[1:]
    return {
        int(number): (title, body.split("\n## ")[0])
        for number, title, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    }


def test_every_exercise_has_one_box_in_order():
    keys = [box.key for box in boxes()]
    assert len(keys) == len(set(keys))
    for kind in ("coding", "experiment", "written"):
        wanted = [e.key for e in TABLE.of_kind(kind)]
        assert [key for key in keys if key[0] == wanted[0][0]] == wanted


@pytest.mark.parametrize("exercise", TABLE.exercises, ids=lambda e: e.key)
def test_a_box_says_what_the_table_says(exercise):
    box = BOXES[exercise.key]
    assert box.title == exercise.title
    if exercise.points:
        assert re.match(rf"{exercise.points:g} points?\b", box.remark), box.remark
    else:
        assert "not graded" in box.remark
    if exercise.kind == "coding":
        assert f"`{exercise.file}`" in box.body
        for function in exercise.implements:
            assert f"`{function}`" in box.body
            assert f"`{function}`" in text()


@pytest.mark.parametrize("exercise", TABLE.of_kind("experiment")[1:], ids=lambda e: e.key)
def test_an_experiment_tells_how_to_make_each_of_its_files(exercise):
    box = BOXES[exercise.key]
    assert "GPU-minute" in box.remark
    for recording in exercise.recordings:
        assert f"a1/nsys.sh {recording} " in box.body
    for artifact in exercise.artifacts:
        assert f"`results/a1/{artifact}`" in text() or f"`{artifact}`" in text(), artifact


def test_recordings_are_made_as_the_checks_expect():
    plain = " ".join(unquoted(text()).replace("\\\n", " ").split())
    for name, recording in artifact_schema.recordings().items():
        assert recording["command"] in plain, name


def test_files_that_are_named_exist():
    tables = {table.file for table in artifact_schema.tables().values()}
    figures = {a for e in TABLE.exercises for a in e.artifacts if a.endswith(".png")}
    of_recordings = {form.format("NAME") for form in RECORDING_FILES}
    for name in names():
        if match := re.fullmatch(r"(?:results/a1/)([\w.]+\.(?:csv|png))", name):
            assert match[1] in tables | figures | of_recordings, name
        elif re.fullmatch(r"(?:olmoe|a1|shared|slurm)/[\w./]+\.(?:py|sh|md|toml|sbatch)", name):
            assert (ROOT / "student" / name).exists() or (ROOT / name).exists(), name
        elif re.fullmatch(r"[A-Z]+\.md", name):
            assert (ROOT / "student" / name).exists(), name


# --- written questions ---


@pytest.mark.parametrize("question", WRITTEN, ids=lambda e: e.key)
def test_template_answers_and_rubric_have_the_handouts_parts(question):
    wanted = parts(BOXES[question.key].body)
    for markdown in (TEMPLATE, ANSWERS):
        title, body = questions(markdown)[question.number]
        assert title == question.title
        assert re.findall(r"^### \(([a-e])\)", body, flags=re.MULTILINE) == wanted
    title, body = questions(RUBRIC)[question.number]
    assert title == question.title
    rows = re.findall(r"^\| ([^|]+) \| (\d+)[^|]* \| (.+) \| (.+) \|$", body, flags=re.MULTILINE)
    assert sum(int(points) for _, points, _, _ in rows) == question.points
    if wanted:
        assert [part for part, *_ in rows] == [f"({letter})" for letter in wanted]
    assert "Common misconceptions" in body
    assert body.count("\n- *") >= 3


def test_parts_are_lettered_in_order():
    for question in WRITTEN:
        letters = parts(BOXES[question.key].body)
        assert letters == list("abcde")[: len(letters)], question.key


def test_model_answers_are_complete():
    as_a_students = f"Name: Staff\n\n{ANSWERS}"
    assert unanswered(as_a_students, [e.number for e in WRITTEN]) == []


def test_every_model_answer_cites_figures():
    for number, (_, body) in questions(ANSWERS).items():
        for part in re.split(r"^### \(\w\)$", body, flags=re.MULTILINE):
            if part.strip() and not (number == 3 and "associative" in part):  # 3(a) is an argument
                assert len(re.findall(r"\d+(?:\.\d+)?", part)) >= 4, (number, part[:60])
