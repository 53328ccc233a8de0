"""Grading the predictor: the table of measurements, the thresholds, and what counts as wrong."""

import ast
import builtins
import csv
import math
import subprocess
from random import Random
from types import SimpleNamespace

import pytest
import torch

from a1 import perfmodel
from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU, gpu
from staff.truth import configurations

from ..probes import perfmodel as probes
from ..proof.corpus import cases
from ..public import test_c9
from ..suite import wire
from ..truth import (
    MEMORY,
    TIME,
    NoTruthError,
    Step,
    enough,
    explained,
    graded,
    judge,
    picked,
    read_truth,
    share_within,
    truth_path,
)

HEADER = "layers,micro_batch_size,seqlen,recompute,step_ms,step_ms_spread,peak_gib,graded_on_time"


def write(tmp_path, *rows: str, header=HEADER, start=""):
    path = tmp_path / "a1_truth.csv"
    path.write_text(start + "\n".join([header, *rows, ""]), encoding="utf-8")
    return path


# ---- the table ---------------------------------------------------------------------------------


def test_reads_measured_steps(tmp_path):
    steps = read_truth(
        write(
            tmp_path,
            "4,4,2048,no,69.0,0.01,21.5,yes",
            "1,1,256,yes,9.5,0.4,4.4,no",
            "8,4,4096,no,out of memory,,out of memory,yes",
        )
    )
    assert steps[0] == Step(4, 4, 2048, False, 69.0, 21.5, True)
    assert steps[0].arguments == [4, 4, 2048, False]
    assert [str(s) for s in steps[:2]] == ["4 layers, 4 x 2048", "1 layer, 1 x 256, recomputed"]
    assert graded(steps, TIME) == steps[:1]
    assert graded(steps, MEMORY) == steps[:2]


def test_a_byte_order_mark_windows_lines_and_other_columns_do_not_matter(tmp_path):
    header = "gpu," + HEADER.replace(",", ",note,", 1)
    path = write(tmp_path, "H200,4,,4,2048,no,69.0,0,21.5,yes", header=header, start="\ufeff")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_truth(path) == [Step(4, 4, 2048, False, 69.0, 21.5, True)]


def test_no_table_is_said_with_the_gpu_and_without_a_path(tmp_path):
    with pytest.raises(NoTruthError) as caught:
        read_truth(tmp_path / "a1_truth.csv", gpu("NVIDIA L40"))
    assert str(caught.value).startswith("no truth table for this GPU (NVIDIA L40) yet: ")
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("four,4,2048,no,69.0,0,21.5,yes", "line 2"),
        ("4,4,2048,maybe,69.0,0,21.5,yes", "line 2"),
        ("4,4,2048,no,-69.0,0,21.5,yes", "'-69.0' is not a measurement"),
        ("4,4,2048,no,nan,0,21.5,yes", "'nan' is not a measurement"),
        ("4,4,2048,no,oom,,oom,yes", "no measured step"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path, row, told):
    with pytest.raises(NoTruthError, match=told):
        read_truth(write(tmp_path, row))


def test_a_table_without_a_column_is_refused(tmp_path):
    with pytest.raises(NoTruthError, match="no column peak_gib"):
        read_truth(write(tmp_path, header=HEADER.replace("peak_gib", "memory")))


def test_tables_lie_with_their_gpu():
    for hidden, name in ((False, "a1_truth.csv"), (True, "a1_truth_hidden.csv")):
        path = truth_path(hidden, gpu("RTX 5090"))
        assert path.parts[-4:] == ("staff", "truth", "nvidia-geforce-rtx-5090", name)


def test_a_term_picks_its_own_hidden_steps():
    pool = [Step(1 + i % 8, 1 + i // 8, 512, False, 1.0 + i, 5.0, True) for i in range(48)]
    pool.append(Step(8, 16, 4096, False, None, None, True))
    one = picked(pool, "one term")
    assert len(set(one)) == 32
    assert one == picked(pool, "one term") != picked(pool, "another term")
    assert pool[-1] not in picked(pool, "x", 100)


# ---- the rule ----------------------------------------------------------------------------------


def steps_of(count: int) -> list[Step]:
    return [
        Step(1 + i % 8, 1 + i, 512, i % 2 == 1, 10.0 * (i + 1), 5.0, True) for i in range(count)
    ]


def answers(values) -> list[dict]:
    return [{"value": v, "raised": "", "offence": ""} for v in values]


def test_four_configurations_in_five_are_enough():
    steps = steps_of(10)
    truth = [s.step_ms for s in steps]
    for wrong, passes in ((0, True), (2, True), (3, False)):
        values = [t * (1.5 if i < wrong else 1.0) for i, t in enumerate(truth)]
        assert enough(judge(answers(values), steps, TIME), 0.3) is passes


@pytest.mark.parametrize(("factor", "passes"), [(1.2999, True), (0.7001, True), (1.31, False)])
def test_the_threshold_counts_in_both_directions(factor, passes):
    steps = steps_of(5)
    judged = judge(answers([s.step_ms * factor for s in steps]), steps, TIME)
    assert share_within(judged, 0.30) == (1 if passes else 0)


def test_the_worst_are_named_with_their_directions():
    steps = steps_of(10)
    values = [s.step_ms for s in steps]
    values[3] *= 3
    values[4] /= 4
    values[5] *= 1.4
    said = explained(judge(answers(values), steps, TIME), 0.15, TIME)
    lines = said.splitlines()
    assert lines[0].startswith("time: 7 of 10 configurations are within 15% of the measurement")
    assert "outside: 2 too high, 1 too low" in said
    assert lines[2].strip().startswith("5 layers, 5 x 512: predicted 12.5 ms, measured 50 ms")
    assert "(75% too low)" in lines[2]
    assert "(200% too high)" in lines[3]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"value": math.nan}, "returned nan, which is not a finite positive number"),
        ({"value": math.inf}, "returned inf, which"),
        ({"value": 0}, "returned 0, which"),
        ({"value": -5.0}, "returned -5, which"),
        ({"value": 10**400}, "returned a number beyond all bounds"),
        ({"value": True}, "returned a bool, which is not a number"),
        ({"value": "10"}, "returned a string, which is not a number"),
        ({"value": None}, "returned None, which is not a number"),
        ({"value": [10.0]}, "returned several values, which is not a number"),
        ({"value": torch.tensor(10.0)}, "returned a tensor, which is not a number"),
        ({"value": wire.Opaque("a.B")}, "returned an object of type a.B, which is not a number"),
        ({"raised": "KeyError: 7"}, "raised KeyError: 7"),
        ({"value": 10.0, "offence": "took 2.5 s"}, "took 2.5 s; a prediction is plain arithmetic"),
        ({"value": 10.0, "offence": "opened the file 'a.csv'"}, "opened the file 'a.csv';"),
    ],
)
def test_what_counts_as_wrong_is_named(answer, told):
    steps = steps_of(2)
    seen = [{"value": None, "raised": "", "offence": "", **answer}, *answers([steps[1].step_ms])]
    judged = judge(seen, steps, TIME)
    assert share_within(judged, 0.3) == 0.5
    assert f"counts as wrong, 1 layer, 1 x 512: predict_step_ms {told}" in explained(
        judged, 0.3, TIME
    )


@pytest.mark.parametrize("forged", [None, [], [1.0, 2.0], "x", answers([1.0])])
def test_an_answer_of_another_form_earns_nothing(forged):
    steps = steps_of(2)
    try:
        judged = judge(forged, steps, TIME)
    except AssertionError:
        return
    assert share_within(judged, 0.3) == 0


# ---- the probe ---------------------------------------------------------------------------------


class Lab:
    """A lab whose a1.perfmodel has the given functions."""

    def __init__(self, **functions):
        self.module = SimpleNamespace(**functions)

    def load(self, name):
        return self.module


def observed(predict, count=3) -> list[dict]:
    calls = [s.arguments for s in steps_of(count)]
    return probes.predictions(Lab(f=predict), function="f", steps=calls)


def test_predictions_are_called_as_documented():
    def predict(cfg, micro_batch_size, seqlen, recompute=False):
        return cfg.n_layers * 1000 + micro_batch_size * 100 + recompute

    assert [o["value"] for o in observed(predict)] == [1100, 2201, 3300]
    assert not any(o["offence"] or o["raised"] for o in observed(predict))


def test_arithmetic_may_use_torch_numpy_and_late_imports():
    def predict(cfg, micro_batch_size, seqlen, recompute=False):
        import colorsys  # noqa: F401 - a module that nobody else has imported

        return (torch.ones(3, dtype=torch.float64) * micro_batch_size).sum().item()

    assert observed(predict)[1] == {"value": 6.0, "raised": "", "offence": ""}


def _reads(path):
    def predict(*step):
        with builtins.open(path, encoding="utf-8") as file:
            return float(len(list(csv.reader(file))))

    return predict


def _starts_a_process(*step):
    return float(subprocess.run(["true"], check=False).returncode + 1)


def _uses_a_gpu(*step):
    with __import__("contextlib").suppress(Exception):
        torch.cuda.synchronize()
    return 1.0


def test_a_file_is_named_without_its_folder(tmp_path):
    path = write(tmp_path, "1,1,1,no,1,0,1,yes")
    assert {o["offence"] for o in observed(_reads(path))} == {"opened the file 'a1_truth.csv'"}
    assert {o["value"] for o in observed(_reads(path))} == {2.0}


def test_a_file_that_is_not_there_is_an_offence_too(tmp_path):
    def predict(*step):
        try:
            return _reads(tmp_path / "gone.csv")(*step)
        except OSError:
            return 1.0

    assert {o["offence"] for o in observed(predict)} == {"opened the file 'gone.csv'"}


@pytest.mark.parametrize(
    ("predict", "told"),
    [(_starts_a_process, "started a process"), (_uses_a_gpu, "used a GPU")],
)
def test_processes_and_devices_are_named(predict, told):
    assert {o["offence"] for o in observed(predict)} == {told}


def test_reading_a_table_when_imported_counts_for_every_prediction(tmp_path):
    path = write(tmp_path, "1,1,1,no,1,0,1,yes")

    class Importing(Lab):
        def load(self, name):
            table = path.read_text(encoding="utf-8")
            return SimpleNamespace(f=lambda *step: float(len(table)))

    seen = probes.predictions(Importing(), function="f", steps=[[1, 1, 128, False]])
    assert seen[0]["offence"] == "opened the file 'a1_truth.csv' when it was imported"


def test_what_happens_outside_a_prediction_is_nobodys_offence(tmp_path):
    seen = observed(lambda *step: 1.0)
    (tmp_path / "a").write_text("x")
    assert not any(o["offence"] for o in seen)
    assert not any(o["offence"] for o in observed(lambda *step: 1.0))


def test_a_slow_prediction_counts_as_wrong_and_the_rest_are_not_waited_for(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(probes, "real_monotonic", lambda: clock[0])
    calls = []

    def predict(*step):
        calls.append(step)
        clock[0] += 1.5
        return 1.0

    seen = observed(predict, count=10)
    assert seen[0]["offence"] == "took 1.5 s"
    assert all(o["offence"] for o in seen)
    assert len(calls) == probes.SLOW_CALLS


def test_one_exception_is_one_wrong_configuration():
    def predict(cfg, micro_batch_size, seqlen, recompute=False):
        return {1: 10.0, 3: 30.0}[micro_batch_size]

    seen = observed(predict)
    assert [o["value"] for o in seen] == [10.0, None, 30.0]
    assert seen[1]["raised"] == "KeyError: 2"


@pytest.mark.parametrize("error", [NotImplementedError, ZeroDivisionError])
def test_a_function_that_only_raises_arrives_as_its_exception(error):
    def predict(*step):
        raise error("nothing yet")

    with pytest.raises(error):
        observed(predict)


# ---- the four tests of the exercise ------------------------------------------------------------

TESTS = {t.__number__: t for t in vars(test_c9).values() if hasattr(t, "__number__")}


def points(lab, truth) -> tuple[float, dict[str, str]]:
    """Points of the four tests, and what those that failed said."""
    said = {}

    def probe(name, /, **arguments):
        sent = wire.decode(wire.encode(arguments))
        return wire.decode(wire.encode(getattr(probes, name.partition(".")[2])(lab, **sent)))

    for number, test in TESTS.items():
        try:
            test(probe, lambda: truth)
        except AssertionError as error:
            said[number] = str(error)
    return sum(t.__weight__ for n, t in TESTS.items() if n not in said), said


def made_up(rows) -> list[Step]:
    """A table as the staff's own model would have it, off by a few per cent: only for tests."""
    draw = Random(0)
    steps = []
    for layers, *rest in rows:
        cfg = OlmoeConfig(n_layers=layers)
        step_ms = perfmodel.predict_step_ms(cfg, *rest) * draw.uniform(0.95, 1.05)
        peak_gib = perfmodel.predict_peak_gib(cfg, *rest) * draw.uniform(0.98, 1.02)
        steps.append(Step(layers, *rest, step_ms, peak_gib, True))
    return steps


PUBLIC, HIDDEN = made_up(configurations.PUBLIC), made_up(configurations.HIDDEN)


def lab_of(source: str) -> Lab:
    namespace = {"__name__": "a1.perfmodel"}
    exec(compile(source, "perfmodel.py", "exec"), namespace)
    return Lab(**{n: namespace[n] for n in ("predict_step_ms", "predict_peak_gib")})


def wrong_predictor(name: str) -> str:
    (case,) = [c for c in cases({"C9"}) if c.name == f"wrong/{name}"]
    return case.files()["a1/perfmodel.py"].decode()


def test_the_staff_predictor_gets_everything():
    staff = Lab(
        predict_step_ms=perfmodel.predict_step_ms, predict_peak_gib=perfmodel.predict_peak_gib
    )
    assert points(staff, PUBLIC) == (20, {})
    assert points(staff, HIDDEN) == (20, {})


@pytest.mark.parametrize(
    "case", [c for c in cases({"C9"}) if "nearest" not in c.name], ids=lambda c: c.name
)
def test_predictors_on_a_made_up_table(case):
    # What they get on the measured tables, to the point, the corpus says and test_corpus checks.
    for table in (PUBLIC, HIDDEN):
        got, said = points(lab_of(case.files()["a1/perfmodel.py"].decode()), table)
        if case.wrong:
            assert 10 <= got < 20
            assert said
        else:
            assert (got, said) == (20, {})


def test_pasting_the_measured_table_gains_little_on_other_configurations():
    table = [[*s.arguments, s.step_ms, s.peak_gib] for s in PUBLIC]
    pasted = lab_of(f"{wrong_predictor('c9_nearest_neighbour')}\n\nMEASURED = {table}\n")
    assert points(pasted, PUBLIC)[0] == 20
    assert points(pasted, HIDDEN)[0] <= 5


def test_a_predictor_that_reads_the_table_gets_nothing(tmp_path):
    path = write(tmp_path, *(f"{s.layers}" for s in PUBLIC), header="x")

    def predict(cfg, micro_batch_size, seqlen, recompute=False):
        path.read_text(encoding="utf-8")
        return perfmodel.predict_step_ms(cfg, micro_batch_size, seqlen, recompute)

    got, said = points(
        Lab(predict_step_ms=predict, predict_peak_gib=perfmodel.predict_peak_gib), PUBLIC
    )
    assert got == 10
    assert "opened the file 'a1_truth.csv'; a prediction is plain arithmetic" in said["C9.1"]


def test_the_public_table_is_pasted_into_the_wrong_solution():
    """It must be the table that students have: paste it anew after every `make truth`."""
    path = truth_path(hidden=False, gpu=COURSE_GPU)
    steps = read_truth(path) if path.is_file() else []
    source = ast.parse(wrong_predictor("c9_nearest_neighbour"))
    (pasted,) = [
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "MEASURED"
    ]
    assert pasted == [[*s.arguments, s.step_ms, s.peak_gib] for s in steps]


def test_without_a_table_the_tests_fail_and_say_so(tmp_path):
    def truth():
        return read_truth(tmp_path / "a1_truth.csv")

    for test in TESTS.values():
        with pytest.raises(AssertionError, match="no truth table for this GPU"):
            test(None, truth)
