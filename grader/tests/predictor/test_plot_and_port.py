"""The picture of a predictor, and the way to another GPU."""

import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

from a1 import predict_plot, session
from staff.tools import port

from ..experiments.test_scripts import ROOT

HEADER = "layers,micro_batch_size,seqlen,recompute,step_ms,step_ms_spread,peak_gib,graded_on_time\n"
ROWS = (
    "1,1,512,no,6.5,0.01,4.7,yes\n2,4,2048,yes,49,0.01,10.6,yes\n4,1,256,yes,30,0.4,14.1,no\n"
    "8,8,4096,no,out of memory,,out of memory,no\n"
)


@pytest.fixture
def truth(tmp_path):
    path = tmp_path / "a1_truth.csv"
    path.write_text(HEADER + ROWS, encoding="utf-8")
    return path


def test_predict_plot_writes_a_picture_and_names_the_worst(truth, tmp_path, monkeypatch, capsys):
    arguments = ["predict_plot.py", "--truth", str(truth), "--results", str(tmp_path / "r")]
    monkeypatch.setattr(sys, "argv", arguments)
    session.run(predict_plot.main)
    printed = capsys.readouterr().out
    assert "(2 graded configurations)" in printed  # one does not repeat, one does not fit
    assert "(3 graded configurations)" in printed
    assert "4L 1x256 rc" in printed
    assert (tmp_path / "r" / "predict.png").read_bytes().startswith(b"\x89PNG")


def test_the_worst_are_the_furthest_in_either_direction(truth):
    table = pd.read_csv(truth)
    factors = iter([1.1, 0.5, 1.6])
    wrong = SimpleNamespace(column="peak_gib", function=lambda *s: None)
    measured = iter([4.7, 10.6, 14.1])
    wrong.function = lambda *step: next(measured) * next(factors)
    rows = predict_plot.worst(predict_plot.predicted(table, wrong))
    assert [round(e, 3) for e in rows.error] == [-0.5, 0.6, 0.1]


@pytest.mark.parametrize("value", [float("nan"), 0.0, -1.0, float("inf")])
def test_a_prediction_that_cannot_be_drawn_is_named(truth, value):
    def predict(*step):
        return value

    quantity = SimpleNamespace(column="step_ms", function=predict)
    with pytest.raises(session.Stop, match=r"predict returned .* for 1L 1x512"):
        predict_plot.predicted(pd.read_csv(truth), quantity)


def test_no_table_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    arguments = ["predict_plot.py", "--truth", str(tmp_path / "none.csv")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stop:
        session.run(predict_plot.main)
    assert "say --truth FILE" in str(stop.value)


# ---- another GPU -------------------------------------------------------------------------------


def test_port_says_what_is_next_and_what_needs_a_person():
    said = subprocess.run(
        [sys.executable, "staff/tools/port.py", "NVIDIA B1000"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.startswith("[ ] data sheet in shared/gpus.toml\n      next: ")
    assert "--out staff/truth/nvidia-b1000/occasions" in said
    assert said.count("next: ") == 1
    assert "Still needs a person, whatever is done above:" in said


def test_port_runs_what_a_machine_can_and_stops_for_another_day(tmp_path):
    done = tmp_path / "done"

    def step(name, ends=False):
        file = done / name
        return port.Step(name, file.is_file, f"mkdir -p done && touch done/{name}", "", ends)

    plan = [step("one"), step("two", ends=True), step("three"), port.Step("four", bool, "")]
    port.run(plan, tmp_path)
    assert sorted(p.name for p in done.iterdir()) == ["one", "two"]
    port.run(plan, tmp_path)
    assert sorted(p.name for p in done.iterdir()) == ["one", "three", "two"]
    assert port.report(plan).count("[x]") == 3
