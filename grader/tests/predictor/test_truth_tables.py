"""From raw occasions to the tables that predictions are graded on."""

import csv
import importlib
import io
import json
import sys
from unittest import mock

import pytest

from shared.gpus import COURSE_GPU, GPUS
from staff.truth import make_tables
from staff.truth.configurations import HIDDEN, PUBLIC, Configuration

from ...gpu import open_gpu
from ...truth import TIME, graded, read_truth
from ..experiments.dry_run import tiny_config
from ..experiments.test_scripts import ROOT

FIRST, SECOND = PUBLIC[0], PUBLIC[1]


# ---- the configurations ------------------------------------------------------------------------


def test_there_are_enough_steps_and_the_two_lists_are_disjoint():
    assert len(set(PUBLIC)) == len(PUBLIC) >= 24
    assert len(set(HIDDEN)) == len(HIDDEN) >= 48
    assert not set(PUBLIC) & set(HIDDEN)


@pytest.mark.parametrize("steps", [PUBLIC, HIDDEN])
def test_steps_are_within_what_the_assignment_says(steps):
    for s in steps:
        assert 1 <= s.layers <= 8
        assert 256 <= s.tokens <= 16384
        assert 128 <= s.seqlen <= 4096
    assert {s.recompute for s in steps} == {False, True}


@pytest.mark.parametrize(
    "corner",
    [
        lambda s: s.micro_batch_size == 1 and s.seqlen == 4096,
        lambda s: s.micro_batch_size >= 64 and s.seqlen == 128,
        lambda s: s.layers == 8,
        lambda s: s.tokens == 256,
    ],
)
def test_the_hidden_steps_go_where_the_public_ones_do_not(corner):
    assert any(map(corner, HIDDEN))
    assert not any(map(corner, PUBLIC))


# ---- making tables -----------------------------------------------------------------------------


def line(step: Configuration, ms: float, queued_ms: float | None = None, **changes) -> dict:
    return {
        **step._asdict(),
        "run": "r",
        "status": "ok",
        "peak_bytes": 2**30,
        "plain_ms": [ms * 0.99, ms, ms * 1.5],
        "queued_ms": [queued_ms or ms],
        "clock_mhz": 1980,
        "power_w": 500.0,
        **changes,
    }


def folder_of(tmp_path, *occasions: list[dict], gpu: str = COURSE_GPU.name):
    folder = tmp_path / COURSE_GPU.slug
    (folder / "occasions").mkdir(parents=True)
    for i, lines in enumerate(occasions):
        run = {"run": "r", "started": "2026-11-30T12:00:00Z", "gpu": gpu, "occasion": str(i)}
        text = "".join(json.dumps(x) + "\n" for x in [run, {"references": "before"}, *lines])
        (folder / "occasions" / f"{i}.jsonl").write_text(text, encoding="utf-8")
    return folder


def rows_of(folder) -> list[dict]:
    return list(csv.DictReader(io.StringIO(make_tables.tables(folder)["a1_truth.csv"])))


def test_a_step_is_the_median_of_its_occasions(tmp_path):
    folder = folder_of(tmp_path, [line(FIRST, 10.0)], [line(FIRST, 10.4)], [line(FIRST, 10.1)])
    (row,) = rows_of(folder)
    assert (row["step_ms"], row["step_ms_spread"]) == ("10.1", "0.0400")
    assert (row["graded_on_time"], row["occasions"], row["peak_gib"]) == ("yes", "3", "1.0000")


@pytest.mark.parametrize(
    ("second_ms", "graded_on_time"), [(10.49, "yes"), (10.51, "no"), (9.5, "no"), (None, "no")]
)
def test_what_does_not_repeat_within_a_third_of_the_threshold_is_not_graded(
    tmp_path, second_ms, graded_on_time
):
    again = [] if second_ms is None else [line(FIRST, second_ms)]
    (row,) = rows_of(folder_of(tmp_path, [line(FIRST, 10.0)], again))
    assert row["graded_on_time"] == graded_on_time
    assert row["peak_gib"] == "1.0000"


def test_a_step_that_waits_for_the_host_is_marked(tmp_path):
    folder = folder_of(tmp_path, [line(FIRST, 10.0, queued_ms=8.0), line(SECOND, 10.0)])
    assert [row["waits_for_host"] for row in rows_of(folder)] == ["yes", "no"]


def test_a_step_that_does_not_fit_is_a_row_that_says_so(tmp_path):
    none = {**FIRST._asdict(), "run": "r", "status": "out of memory"}
    folder = folder_of(tmp_path, [none, line(SECOND, 5.0)], [none, line(SECOND, 5.0)])
    assert rows_of(folder)[0]["step_ms"] == "out of memory"
    table = tmp_path / "a1_truth.csv"
    table.write_text(make_tables.tables(folder)["a1_truth.csv"], encoding="utf-8")
    steps = read_truth(table)
    assert [s.step_ms for s in steps] == [None, 5.0]
    assert graded(steps, TIME) == steps[1:]


def test_occasions_of_another_gpu_are_refused(tmp_path):
    folder = folder_of(tmp_path, [line(FIRST, 10.0)], gpu=GPUS[1].name)
    with pytest.raises(SystemExit, match="is not the folder of an"):
        make_tables.tables(folder)


def test_the_public_table_is_pasted_between_its_brackets(tmp_path):
    solution = tmp_path / "wrong.py"
    solution.write_text("# x\nMEASURED = [\n    [1],\n]\n\n\ndef f():\n    return [2]\n")
    folder = folder_of(tmp_path, [line(FIRST, 10.0)])
    for _ in range(2):  # pasting again changes nothing
        make_tables.paste(make_tables.tables(folder)["a1_truth.csv"], solution)
        expected = (
            f"    [{FIRST.layers}, {FIRST.micro_batch_size}, {FIRST.seqlen}, False, 10.0, 1.0],"
        )
        assert solution.read_text() == (
            f"# x\nMEASURED = [\n{expected}\n]\n\n\ndef f():\n    return [2]\n"
        )


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent.parent for path in (ROOT / "staff" / "truth").glob("*/occasions/*.jsonl")}),
    ids=lambda folder: folder.name,
)
def test_the_tables_in_the_repository_are_what_the_occasions_give(folder):
    for name, text in make_tables.tables(folder).items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"make tables anew: {name}"


# ---- measuring, on a virtual GPU ---------------------------------------------------------------


@pytest.fixture
def measure(tmp_path, capsys):
    """Runs measure.py with a tiny model; gives the lines of its file and what it printed."""
    with open_gpu("virtual", COURSE_GPU):
        module = importlib.import_module("staff.truth.measure")
        tiny = {"REFERENCE_GEMM": 16, "REFERENCE_NUMBERS": 1024, "GROUP_MS": 2.0}

        def script(*arguments: str):
            argv = ["measure.py", "--occasion", "monday", "--out", str(tmp_path), *arguments]
            with (
                mock.patch.object(sys, "argv", argv),
                mock.patch.object(module.session, "OlmoeConfig", tiny_config),
                mock.patch.multiple(module, **tiny),
            ):
                module.main()
            return module.read_lines(tmp_path / "monday.jsonl"), capsys.readouterr().out

        script.module = module
        yield script


def test_an_occasion_is_resumed_where_it_was_interrupted(measure, tmp_path):
    lines, _ = measure("--quick", "--layers", "1")
    steps = [x for x in lines if "layers" in x]
    assert len(steps) == 2
    for step in steps:
        assert step["status"] == "ok"
        assert len(step["plain_ms"]) == 10
        assert len(step["group_ms"]) == measure.module.GROUPS
        assert step["hidden"] == [True] * measure.module.QUEUED
        assert step["peak_bytes"] > 0
        assert set(step["stages"]) == {"forward_ms", "backward_ms", "recompute_ms", "optimizer_ms"}
    path = tmp_path / "monday.jsonl"
    text = path.read_text(encoding="utf-8")
    second = text.index(json.dumps(steps[1]["layers"]), text.index('"peak_bytes"'))
    path.write_text(text[: text.index("\n", second) + 1 + 20], encoding="utf-8")  # cut off
    again, printed = measure("--quick", "--layers", "1")
    assert {make_tables.Configuration(**{n: x[n] for n in Configuration._fields})
            for x in again if "layers" in x} == {
        Configuration(*(x[n] for n in Configuration._fields)) for x in steps
    }  # fmt: skip
    assert "were there before" in printed


def test_an_occasion_is_one_machine(measure, tmp_path):
    measure("--quick", "--layers", "1")
    path = tmp_path / "monday.jsonl"
    path.write_text(path.read_text().replace('"gpu_uuid": null', '"gpu_uuid": "GPU-other"', 1))
    with pytest.raises(measure.module.session.Stop, match="an --occasion of its own"):
        measure("--quick", "--layers", "1")


def test_what_does_not_fit_is_kept_as_such_and_the_next_step_is_measured(measure):
    module = measure.module
    real, calls = module.train_step, []

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise module.torch.OutOfMemoryError("CUDA out of memory")
        return real(*arguments)

    with mock.patch.object(module, "train_step", fails_once):
        lines, _ = measure("--quick", "--layers", "1")
    assert [x["status"] for x in lines if "layers" in x] == ["out of memory", "ok"]
