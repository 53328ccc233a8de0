"""What is committed is what templates and results make; a false statement stops the renderer."""

from __future__ import annotations

import csv
import re
import shutil

import pytest

from staff.handout import render, webpage
from staff.handout.results import MissingResult, Results


@pytest.fixture(scope="module")
def pages() -> dict:
    return render.render()


@pytest.fixture
def copied(tmp_path):
    """The staff's results, to be tampered with."""
    folder = tmp_path / "results"
    shutil.copytree(render.RESULTS, folder)
    return folder


def edit(path, column: str, value: str, **where: str) -> None:
    """Writes `value` into a column of the rows of a CSV file that have these cells."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    chosen = [r for r in rows if all(r[k] == v for k, v in where.items())]
    assert chosen, f"{path.name} has no row with {where}"
    for row in chosen:
        row[column] = value
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def test_committed_pages_are_what_rendering_makes(pages):
    assert render.stale(pages) == [], "run python staff/handout/render.py"


def test_rendering_is_repeatable(pages):
    assert render.render() == pages


def test_a_page_that_was_edited_by_hand_is_stale(pages, monkeypatch):
    edited = {path: text.replace("roofline", "Roofline", 1) for path, text in pages.items()}
    assert len(render.stale(edited)) == sum(edited[p] != pages[p] for p in pages) > 0


def test_a_measurement_that_changes_changes_the_text(copied, pages):
    edit(copied / "regimes.csv", "ms", "1.4567", workload="large GEMM, 8192^3")
    handout = render.render(copied)[render.HANDOUT]
    assert "1.4567 ms" in handout
    assert handout != pages[render.HANDOUT]


@pytest.mark.parametrize(
    ("table", "column", "value", "where", "claim"),
    [
        ("ops", "gbs", "4900", {"op": "add", "tensor_bytes": "16777216"}, "above the memory"),
        ("fwd_small_ranges", "sm_active", "95", {"range": "experts"}, "SMs idle"),
        ("train_naive_ranges", "gpu_ms_per_step", "35", {"range": "(backward)"}, "naive backward"),
        ("train_ranges", "gpu_ms_per_step", "30", {"range": "backward"}, "backward range"),
        ("micro_batches", "status", "out of memory", {"micro_batch_size": "16"}, "fits"),
    ],
)
def test_results_that_contradict_the_text_stop_it(copied, table, column, value, where, claim):
    edit(copied / f"{table}.csv", column, value, **where)
    with pytest.raises(render.ClaimError, match=claim):
        render.render(copied)


def test_a_result_that_is_missing_is_named(copied):
    (copied / "regimes.csv").unlink()
    with pytest.raises(MissingResult, match=r"regimes\.csv"):
        render.render(copied)


def test_a_missing_transcript_is_described_instead(copied):
    shutil.rmtree(copied / "transcripts")
    results = Results(copied)
    assert results.transcript("three_timings") is None


def test_a_transcript_is_shown_as_it_is(copied):
    said = "$ python three_timings.py\n1  host's clock around the call       0.031 ms"
    (copied / "transcripts" / "three_timings.txt").write_text(said + "\n")
    assert said in render.render(copied)[render.HANDOUT]


def test_every_transcript_that_a_template_shows_can_be_recorded():
    templates = "".join((render.HERE / name).read_text() for name in render.PAGES)
    shown = set(re.findall(r"transcript\('(\w+)'\)", templates))
    recorder = (render.HERE / "record.sh").read_text()
    recorded = set(re.findall(r"^(?:record|script) (\w+) ", recorder, flags=re.MULTILINE))
    assert shown - recorded == {"check"}  # printed by `make check`, which asks about the machine
    assert recorded <= shown


def test_pages_name_no_machine_and_no_template(pages):
    for path, text in pages.items():
        body = text.split("-->", 1)[1]
        for trace in ("/work", "/tmp", "/root", "{{", "{%", "None", "nan", "<cluster>"):
            assert trace not in body, f"{path.name}: {trace}"


def test_check_says_what_is_stale(monkeypatch, capsys):
    monkeypatch.setattr(render, "stale", lambda pages: ["--- HANDOUT.md"])
    with pytest.raises(SystemExit, match="stale"):
        render.main(["--check"])


# --- the page for browsers ---


@pytest.fixture(scope="module")
def html(pages) -> str:
    return webpage.page(pages[render.HANDOUT])


def test_every_heading_has_an_anchor_and_every_link_a_target(html):
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', html)
    assert targets and set(targets) <= set(ids)
    assert len(re.findall(r"<h[123] id=", html)) == len(re.findall(r"<h[1-6]", html))


def test_every_box_is_marked(html):
    marked = re.findall(r'<blockquote class="(\w+)"', html)
    assert len(marked) == html.count("<blockquote")
    assert {k: marked.count(k) for k in webpage.KINDS} == {
        "coding": 9,
        "experiment": 7,
        "written": 7,
        "challenge": 5,
    }


def test_tables_and_code_came_through(html, pages):
    assert html.count("<table>") == len(re.findall(r"^(?:> )?\| ---", pages[render.HANDOUT], re.M))
    # Markdown's own marks are gone, outside code.
    prose = re.sub(r"<(pre|code|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert "**" not in prose and "```" not in prose and "| ---" not in prose
    assert "<script" not in html and "http-equiv" not in html
