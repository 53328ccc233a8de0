"""The rules for the staff one by one, where the fabrications do not reach, and the report."""

import json
import random

import pytest

from grader.proof.fabrications.__main__ import main
from grader.rules.experiment import Results, load
from grader.staff_rules import digits, likeness, report, sidecars
from grader.staff_rules.remeasure import cells, remeasure
from grader.staff_rules.report import MAX_LINES, RULES, staff_notes
from shared.provenance import sidecar_path

from .conftest import SETS


def edit_runs(folder, name, change):
    """Apply `change` to every run of a sidecar."""
    path = sidecar_path(folder.path / f"{name}.csv")
    note = json.loads(path.read_text())
    for run in note["runs"]:
        change(run)
    path.write_text(json.dumps(note))


def test_every_rule_says_why_and_what_else_it_may_be():
    for rule in (*RULES, likeness.same_as, likeness.unlike_staff):
        assert "Honest cause" in rule.__doc__, rule.__name__


# --- sidecars ---


def test_two_models_of_gpu(folder):
    edit_runs(folder, "ops", lambda run: run.update(gpu="NVIDIA L40"))
    (note,) = sidecars.one_gpu(load(folder.path))
    assert "NVIDIA H200" in note.what and "NVIDIA L40" in note.what


def test_two_runs_at_once_on_one_gpu(folder):
    other = sidecars.runs(load(folder.path))["sweep.csv"][0]
    times = {"started": other["started"], "ended": other["ended"]}
    edit_runs(folder, "micro_batches", lambda run: run.update(times))
    (note,) = sidecars.overlapping_runs(load(folder.path))
    assert note.evidence["s"] > 2

    edit_runs(folder, "micro_batches", lambda run: run.update(gpu_uuid="GPU-another"))
    assert not sidecars.overlapping_runs(load(folder.path))


def test_a_sidecar_that_is_missing_and_a_run_that_it_lacks(folder):
    sidecar_path(folder.path / "gemm.csv").unlink()
    (note,) = sidecars.no_sidecar(load(folder.path))
    assert note.file == "gemm.csv"


def test_rows_of_a_run_that_no_sidecar_lists(folder):
    frame = folder.frame("sweep")
    frame.loc[frame.index[3], "run"] = "20270101T000000Z-ffff"
    folder.write("sweep", frame)
    (note,) = sidecars.no_sidecar(load(folder.path))
    assert note.file == "sweep.csv"


def test_scripts_that_were_changed(folder):
    edit_runs(folder, "gemm", lambda run: run["code"].update({"a1/bench_gemm.py": "0" * 64}))
    (note,) = sidecars.other_code(load(folder.path))
    assert "a1/bench_gemm.py" in note.what


def test_the_students_own_files_may_be_any(folder):
    edit_runs(folder, "gemm", lambda run: run["code"].update({"olmoe/prof.py": "0" * 64}))
    assert not sidecars.other_code(load(folder.path))


@pytest.mark.parametrize("name", ["gemm_sustained", "stages", "sweep", "regimes"])
def test_a_run_that_was_over_too_soon(folder, name):
    edit_runs(folder, name, lambda run: run.update(ended=run["started"]))
    (note,) = sidecars.too_quick(load(folder.path))
    assert note.file == f"{name}.csv"


# --- likeness ---


def test_the_same_hand_in_twice(folder):
    (note,) = likeness.same_as(load(folder.path), {"a student": load(SETS[0])})
    assert "a student" in note.what and note.evidence["runs in both"]


def test_another_occasion_is_not_the_same(course):
    mine, other = (load(course.student(i, quiet=True).path) for i in (20, 21))
    assert not likeness.same_as(mine, {"other": other})


# --- another GPU, whose timer is not known ---


def test_the_tick_is_not_assumed_of_another_gpu(folder):
    folder.scale(lambda ms: 1.2345)
    for name in digits.TIMED_CALLS:
        edit_runs(folder, name, lambda run: run.update(gpu="NVIDIA L40"))
    assert not digits.timer_tick(load(folder.path))


def test_but_one_cell_off_it_is_noted(folder):
    frame = folder.frame("gemm")
    frame.loc[frame.index[4], "ms"] = 0.021001
    folder.write("gemm", frame)
    edit_runs(folder, "gemm", lambda run: run.update(gpu="NVIDIA L40"))
    (note,) = digits.timer_tick(load(folder.path))
    assert note.evidence["off"] == 1


# --- measuring again ---


class FakeMeasurer:
    """Knows the handed-in cells, and answers them times a factor."""

    def __init__(self, results, factor):
        self.results, self.factor, self.asked = results, factor, []

    def _find(self, artifact, column="ms", **keys):
        frame = self.results.frame(artifact)
        for key, value in keys.items():
            frame = frame[frame[key] == value]
        self.asked.append((artifact, *keys.values()))
        return frame[column].iloc[0] * self.factor[artifact]

    def gemm_ms(self, m, k, n):
        return self._find("gemm", m=m, k=k, n=n)

    def op_ms(self, op, tensor_bytes):
        return self._find("ops", op=op, tensor_bytes=tensor_bytes)

    def step_ms(self, layers, micro_batch_size, seqlen, recompute):
        flag = "yes" if recompute else "no"
        keys = {"layers": layers, "micro_batch_size": micro_batch_size}
        return self._find("sweep", "step_ms", **keys, seqlen=seqlen, recompute=flag)


def test_measured_again_within_the_noise(folder):
    results = load(folder.path)
    measurer = FakeMeasurer(results, {"gemm": 1.05, "ops": 0.97, "sweep": 1.06})
    assert not remeasure(results, 9, measurer, seed=5)
    assert len(set(measurer.asked)) == 9
    assert {artifact for artifact, *_ in measurer.asked} == {"gemm", "ops", "sweep"}


def test_measured_again_and_far_off(folder):
    results = load(folder.path)
    measurer = FakeMeasurer(results, {"gemm": 1.0, "ops": 1.0, "sweep": 1.25})
    (note,) = remeasure(results, 6, measurer, seed=5)
    assert note.file == "sweep.csv" and note.evidence["cells"] == 2


def test_what_does_not_fit_any_more_is_passed_over(folder):
    class Full:
        def __getattr__(self, kind):
            def measure(*arguments):
                raise MemoryError

            return measure

    assert not remeasure(load(folder.path), 4, Full(), seed=1)


def test_launch_bound_cells_and_other_gpus_are_not_measured_again(folder):
    chosen = cells(load(folder.path), 1000, random.Random(0))
    assert min(ms for *_, ms in chosen) > 0.2 and len(chosen) > 20
    for name in ("gemm", "ops", "sweep"):
        edit_runs(folder, name, lambda run: run.update(gpu="NVIDIA L40"))
    assert not cells(load(folder.path), 1000, random.Random(0))


# --- the report ---


def test_the_report_is_a_list_of_lines(folder):
    frame = folder.frame("gemm")
    folder.write("gemm", frame.assign(ms=frame["ms"].round(2) + 0.01))
    lines = staff_notes(folder.path)
    assert lines and all("\n" not in line for line in lines)
    assert len(lines) <= MAX_LINES + 1


def test_a_folder_that_is_not_there(tmp_path):
    assert staff_notes(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "null", "[]", '{"runs": [{}]}', '{"runs": [{"code": {"a": 1}, "gpu": 7}]}',
        '{"runs": [{"code": [], "started": 3, "ended": null, "gpu_uuid": {}, "run": []}]}',
        '{"runs": [{"command": [["--seconds"]], "started": "2027-01-01T00:00:00Z", '
        '"ended": "2027-01-01T00:00:00Z"}]}',
    ],
)  # fmt: skip
def test_sidecars_with_anything_in_them(folder, text):
    for path in folder.path.glob("*.csv.json"):
        path.write_text(text)
    assert all(isinstance(line, str) for line in staff_notes(folder.path))
    assert not any("failed" in line for line in staff_notes(folder.path))


@pytest.mark.parametrize("keep", [0, 1, 2, 5])
def test_tables_with_few_rows(folder, keep):
    for path in folder.path.glob("*.csv"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: 1 + keep]))
    assert not any("failed" in line for line in staff_notes(folder.path))


def test_tables_cut_off_anywhere(folder):
    for path in folder.path.glob("*.csv"):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) * 2 // 3])
    assert not any("failed" in line for line in staff_notes(folder.path))


def test_a_rule_that_fails_says_so_and_stops_no_other(folder, monkeypatch):
    def broken(results):
        raise RuntimeError("no such luck")

    sidecar_path(folder.path / "gemm.csv").unlink()
    monkeypatch.setattr(report, "RULES", (broken, sidecars.no_sidecar))
    lines = staff_notes(folder.path)
    assert "no such luck" in lines[0] and "no_sidecar" in lines[1]


def test_files_far_larger_than_honest_ones_are_not_read(folder, monkeypatch):
    path = folder.path / "sweep.csv"
    path.write_text(path.read_text() + "1,1,1,no\n" * 200_000)
    asked = []
    read = Results.frame
    monkeypatch.setattr(Results, "frame", lambda self, n: asked.append(n) or read(self, n))
    report.notes(load(folder.path))
    assert "gemm" in asked and "sweep" not in asked


def test_the_table_is_printed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fabrications", str(SETS[0]), "--each", "1", "--drawn", "1"])
    monkeypatch.setattr("grader.proof.fabrications.__main__.fabrications", lambda: {})
    monkeypatch.setattr("grader.proof.fabrications.__main__.timer_aware_fabrications", lambda: {})
    assert main() == 0
    assert "measured" in capsys.readouterr().out
