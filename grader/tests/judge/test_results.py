"""results.json is valid whatever happened, and shows a student nothing of the hidden tests."""

from __future__ import annotations

import json
import math
import os
import random

import jsonschema
import pytest

from ...judge import results as module
from ...judge.results import (
    GRADER_FAULT,
    TOTAL_CHARS,
    Results,
    TestResult,
    clean,
    shorten,
    without_results,
    write_results,
)
from ...suite.score_table import score_table
from .samples import sample_table


def sample(number="C1.1", suite="public", **fields) -> TestResult:
    fields = {"name": "Each call is timed.", "exercise": "C1", "max_score": 5} | fields
    return TestResult(number=number, suite=suite, **fields)


def passed(*args, **fields) -> TestResult:
    return sample(*args, score=fields.get("max_score", 5), status="passed", **fields)


def written(results: Results, tmp_path) -> dict:
    """What a reader of the file gets, who is as strict as can be."""

    def refuse(word):
        raise AssertionError(f"{word} in the file")

    returned = write_results(results, tmp_path / "results" / "results.json")
    read = json.loads((tmp_path / "results/results.json").read_bytes(), parse_constant=refuse)
    assert read == json.loads(json.dumps(returned))
    assert os.listdir(tmp_path / "results") == ["results.json"]
    return read


def shown_to_students(content: dict) -> str:
    """Everything that Gradescope shows, hidden tests included once grades are published."""
    shown = {k: v for k, v in content.items() if k not in ("extra_data", "tests")}
    tests = [{k: v for k, v in t.items() if k != "extra_data"} for t in content["tests"]]
    return json.dumps([shown, tests], ensure_ascii=False)


# ---- Scores -----------------------------------------------------------------------------------


def test_the_total_is_the_sum_of_the_tests(tmp_path):
    cases = [passed(case=str(n), max_score=5 / 3) for n in range(3)]
    content = written(Results([*cases, sample("C1.2"), passed("C1.1", "hidden")]), tmp_path)
    assert content["score"] == 10 == math.fsum(t["score"] for t in content["tests"])


@pytest.mark.parametrize(
    "score", [math.nan, math.inf, -math.inf, -1, 500, True, "5", None, 10**400]
)
def test_a_score_that_cannot_be_counts_as_nothing_and_the_staff_learn_of_it(tmp_path, score):
    odd = sample(score=score, status="passed")
    content = written(Results([odd, passed("C1.2")]), tmp_path)
    assert content["score"] == 5
    assert content["tests"][0]["status"] == "failed"
    assert "counted as 0" in content["tests"][0]["extra_data"]["staff_output"]


@pytest.mark.parametrize(
    "fields",
    [
        {"suite": "experiment"},
        {"status": "ok"},
        {"visibility": "never"},
        {"suite": "hidden", "visibility": "visible"},
        {"max_score": math.nan},
        {"max_score": -1},
        {"number": ""},
    ],
)
def test_a_test_that_cannot_be_is_our_fault(fields):
    with pytest.raises(ValueError):
        sample(**fields)


def test_a_planned_test_that_never_reports_is_there_and_not_judged(tmp_path):
    results = Results([sample("C1.1"), sample("C1.2"), sample("C1.1", "hidden")])
    results.record(passed("C1.1"))
    content = written(results, tmp_path)
    assert [t["score"] for t in content["tests"]] == [5, 0, 0]
    assert [t.get("status") for t in content["tests"]] == ["passed", None, None]
    assert content["tests"][1]["output"].startswith("Not judged")
    assert content["tests"][1]["extra_data"]["status"] == "not_judged"
    assert "not_judged" in content["tests"][1]["tags"]


def test_what_was_not_judged_has_no_points():
    assert Results([sample(score=5, status="not_judged")]).score == 0


def test_only_what_was_planned_is_recorded():
    results = Results([sample("C1.1")])
    with pytest.raises(ValueError, match="was not planned"):
        results.record(passed("C1.9"))
    with pytest.raises(ValueError, match="planned for 5 points"):
        results.record(passed("C1.1", max_score=50))
    with pytest.raises(ValueError, match="more than once"):
        Results([sample(), sample()])


def test_the_plugins_records_are_understood():
    record = {
        "id": "public/C1.2[64-bf16]",
        "number": "C1.2",
        "exercise": "C1",
        "suite": "public",
        "title": "Warm-up calls are left out.",
        "max_score": 2.5,
        "passed": True,
        "skipped": False,
        "message": "",
        "staff": "",
        "seconds": 0.1,
        "tier": "virtual",
    }
    planned = TestResult.of_record(record, judged=False)
    done = TestResult.of_record(record)
    skipped = TestResult.of_record(record | {"skipped": True, "message": "no GPU here"})
    assert planned.key == done.key == ("public", "C1.2", "64-bf16")
    assert (planned.status, done.status, skipped.status) == ("not_judged", "passed", "not_judged")
    assert (planned.score, done.score, skipped.score) == (0, 2.5, 0)
    results = Results([planned])
    results.record(done)
    assert results.score == 2.5


def test_the_score_table_takes_these_results():
    tests = [
        passed("C1.1"),
        sample("C2.1", exercise="C2", status="failed"),
        sample("E1.1", "experiments", exercise="E1"),
    ]
    lines = score_table(tests, sample_table()).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["Coding", "1", "OK", "5/5"],
        ["Coding", "2", "FAIL", "0/5"],
        ["Experiment", "1", "----", "0/5"],
        ["Total", "5/15"],
    ]


# ---- What is shown to whom ----------------------------------------------------------------------


def test_nothing_of_a_hidden_test_is_shown(tmp_path):
    secret = "SECRET-4711 /srv/hidden/test_c1.py"
    tests = [
        passed("C1.1", output="fine"),
        sample("C1.1", "hidden", status="failed", output=secret, staff_output=secret, case=secret),
        passed("C1.2", "hidden", output=secret),
        sample("C1.3", "hidden", output=secret),
    ]
    content = written(Results(tests, notes=[secret], provenance={"seed": secret}), tmp_path)
    assert "SECRET" not in shown_to_students(content)
    assert [t["visibility"] for t in content["tests"]] == ["visible"] + ["after_published"] * 3
    assert secret in content["tests"][1]["extra_data"]["staff_output"]
    assert content["stdout_visibility"] == "hidden"


def test_the_student_reads_the_public_subtotal(tmp_path):
    tests = [
        passed("C1.1"),
        sample("E1.1", "experiments", status="failed"),
        passed("C1.1", "hidden"),
    ]
    content = written(
        Results(tests, problems=["p9/model.py is missing."], output="TABLE"), tmp_path
    )
    first, second, *rest = content["output"].splitlines()
    assert first == "Public: 5/10"
    assert "hidden" in second and "10" not in second
    assert "- p9/model.py is missing." in rest and "TABLE" in rest


def test_texts_are_shown_as_text_not_as_html(tmp_path):
    content = written(Results([sample(output="<script>", status="failed")]), tmp_path)
    assert content["output_format"] == content["test_output_format"] == "text"
    assert content["test_name_format"] == "text"


# ---- Text ---------------------------------------------------------------------------------------


def test_megabytes_of_output_are_cut_in_the_middle_of_each_and_in_total(tmp_path):
    huge = "first line\n" + "x" * 2_000_000 + "\nlast line"
    tests = [
        sample(f"C1.{n}", status="failed", output=huge, staff_output=huge) for n in range(1, 61)
    ]
    results = Results(tests, output=huge, problems=[huge], notes=[huge], grader_fault=huge)
    content = written(results, tmp_path)
    outputs = [content["output"], *(t["output"] for t in content["tests"])]
    assert sum(map(len, outputs)) <= TOTAL_CHARS < 100_000
    assert all(o.startswith("first line\n") and o.endswith("last line") for o in outputs[1:])
    assert all("left out" in o for o in outputs[1:])
    assert sum(len(t["extra_data"]["staff_output"]) for t in content["tests"]) <= TOTAL_CHARS


def test_short_outputs_are_not_cut_for_the_long_ones(tmp_path):
    long = [sample(f"C2.{n}", status="failed", output="y" * 8000) for n in range(1, 40)]
    content = written(Results([sample(status="failed", output="short"), *long]), tmp_path)
    assert content["tests"][0]["output"] == "short"


@pytest.mark.parametrize("limit", [0, 1, 30, 70, 99, 100, 101])
def test_a_shortened_text_keeps_its_limit(limit):
    text = "".join(map(chr, random.Random(limit).choices(range(97, 122), k=100)))
    assert len(shorten(text, limit)) <= limit
    assert shorten(text, 100) == text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a\x00b", "a\ufffdb"),
        ("\x1b[31mred\x1b[0m \x1b[2K\x1b[1;1H", "red "),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "link"),
        ("\x1b", ""),
        ("10%\r50%\r\n", "10%\n50%\n"),
        ("bad \ud800 pair", "bad \ufffd pair"),
        ("a\x9bb\x7f", "a\ufffdb\ufffd"),
        ("\u202egnp.exe", "gnp.exe"),
        ("tab\tnewline\n Ω 表 😀", "tab\tnewline\n Ω 表 😀"),
    ],
)
def test_text_is_cleaned(tmp_path, text, expected):
    assert clean(text) == expected
    content = written(
        Results([sample(status="failed", output=text, name=text, case=text)]), tmp_path
    )
    assert content["tests"][0]["output"] == expected


# ---- Whatever goes wrong ------------------------------------------------------------------------


def test_a_hand_in_that_cannot_be_read_gets_a_valid_result(tmp_path):
    planned = [sample("C1.1"), sample("C1.1", "hidden"), sample("E1.1", "experiments")]
    results = without_results("up.tar.gz is empty. Upload it again.", planned)
    content = written(results, tmp_path)
    assert content["score"] == 0 and len(content["tests"]) == 3
    assert "Upload it again" in content["output"]
    assert content["tests"][0]["output"] == "Not judged: up.tar.gz is empty. Upload it again."
    assert {t["status"] for t in content["tests"]} == {"failed"}
    assert "Upload it again" not in content["tests"][1]["output"]
    assert written(without_results(""), tmp_path)["tests"] == []


def test_a_fault_of_ours_is_not_blamed_on_the_student(tmp_path):
    fault = "Traceback: /srv/grader/score.py"
    results = without_results("", [sample()], grader_fault=fault, provenance={"grader": "abc"})
    content = written(results, tmp_path)
    assert content["output"].startswith(GRADER_FAULT)
    assert "Traceback" not in shown_to_students(content)
    assert content["extra_data"]["grader_fault"] == fault
    assert "status" not in content["tests"][0]


def test_provenance_of_any_kind_can_be_written(tmp_path):
    looped: dict = {}
    looped["self"] = looped
    odd = {"nan": math.nan, "path": tmp_path, "set": {1}, 3: (1, None), "deep": looped, "e": b"\0"}
    content = written(Results([], provenance=odd), tmp_path)
    assert content["extra_data"]["provenance"]["nan"] == "nan"
    assert content["extra_data"]["provenance"]["3"] == [1, None]


def test_a_file_that_breaks_the_rules_is_not_written(tmp_path, monkeypatch):
    results = Results([passed()])
    before = written(results, tmp_path)
    monkeypatch.setattr(Results, "to_gradescope", lambda self: before | {"score": "5"})
    with pytest.raises(jsonschema.ValidationError):
        write_results(results, tmp_path / "results/results.json")
    assert json.loads((tmp_path / "results/results.json").read_text()) == before


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    results = Results([sample()])
    before = written(results, tmp_path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    results.record(passed())
    with pytest.raises(OSError):
        write_results(results, tmp_path / "results/results.json")
    monkeypatch.undo()
    assert json.loads((tmp_path / "results/results.json").read_text()) == before
    assert os.listdir(tmp_path / "results") == ["results.json"]


def test_the_file_may_be_written_after_every_test(tmp_path):
    planned = [sample(f"C1.{n}") for n in range(1, 6)]
    results = Results(planned)
    scores = []
    for n in range(1, 6):
        results.record(passed(f"C1.{n}"))
        scores.append(written(results, tmp_path)["score"])
    assert scores == [5, 10, 15, 20, 25]


@pytest.mark.parametrize(
    "change",
    [
        {"score": math.nan},
        {"visibility": "published"},
        {"tests": [{"name": "no score"}]},
        {"output": "a\0b"},
        {"output": "x" * 100_000},
        {"surprise": 1},
    ],
)
def test_the_schema_refuses_what_gradescope_would(tmp_path, change):
    content = written(Results([passed()]), tmp_path) | change
    with pytest.raises((jsonschema.ValidationError, ValueError)):
        module._validator().validate(content)
        json.dumps(content, allow_nan=False)
