"""The staff's predictor: how its constants are fitted, how good it is, and other GPUs."""

import ast
import statistics
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from a1 import other_gpu, perfmodel
from olmoe.config import OlmoeConfig
from shared import artifacts
from shared.gpus import gpu
from staff.fit import fit_predictor
from staff.truth.configurations import HIDDEN, PUBLIC

from ...truth import MEMORY, TIME, graded, read_truth, truth_path

FIT = Path(fit_predictor.__file__)
L40, RTX_5090 = "NVIDIA L40", "NVIDIA GeForce RTX 5090"


def call(step) -> tuple:
    layers, *rest = step.arguments
    return OlmoeConfig(n_layers=layers), *rest


# ---- fitting -----------------------------------------------------------------------------------

TRUE = replace(perfmodel.H200, gemm_tflops=640.0, weight_gbs=3500.0, backward_gbs=2000.0)


def write_experiments(folder: Path, rates=TRUE) -> None:
    """What the experiments would write on a GPU with these rates."""
    rows = []
    for layers, recompute in ((1, False), (2, False), (4, False), (4, True), (8, False)):
        for size, seqlen in ((1, 256), (1, 512), (2, 1024), (1, 2048), (4, 1024), (4, 2048)):
            step = (OlmoeConfig(n_layers=layers), size, seqlen, recompute)
            terms = perfmodel.step_terms_ms(rates, *step)
            step_ms = perfmodel.step_ms(rates, *step)
            waits = step_ms > 1.01 * sum(terms.values())
            rows.append(
                dict(layers=layers, micro_batch_size=size, seqlen=seqlen, status="ok", run="r",
                     recompute="yes" if recompute else "no", step_ms=step_ms, **terms,
                     kernel_running_percent=70 if waits else 100,
                     tokens_per_s=size * seqlen / step_ms * 1e3, mfu_percent=1.0, peak_gib=5.0)
            )  # fmt: skip
    artifacts.write("sweep", rows, folder / "sweep.csv")
    gemms = []
    for shape, k, n in (("attention q_proj", 2048, 2048), ("lm_head", 2048, 50304)):
        for m in (64, 4096, 8192):
            ms = perfmodel.gemm_ms(rates, m, k, n)
            nbytes = 2 * (m * k + k * n + m * n)
            gemms.append(
                dict(shape=shape, m=m, k=k, n=n, ms=ms, tflops=2 * m * k * n / ms / 1e9,
                     gbs=nbytes / ms / 1e6, intensity=2 * m * k * n / nbytes)
            )  # fmt: skip
    artifacts.write("gemm", gemms, folder / "gemm.csv")
    text = "range,gpu_ms_per_step,instances,gpu_ops\n"
    text += f"forward,{16 * rates.host_forward_ms},1,658\n"
    (folder / "fwd_small_ranges.csv").write_text(text, encoding="utf-8")


def test_the_fit_finds_the_rates_that_made_the_experiments(tmp_path):
    write_experiments(tmp_path)
    found = fit_predictor.fit([tmp_path])
    for step in (*PUBLIC, *HIDDEN):
        arguments = (OlmoeConfig(n_layers=step.layers), *step[1:])
        terms = [perfmodel.step_terms_ms(rates, *arguments) for rates in (found, TRUE)]
        ours, true = (sum(t.values()) for t in terms)
        assert ours == pytest.approx(true, rel=0.02), step
    assert found.gemm_tflops == pytest.approx(640, rel=0.02)
    assert found.backward_gbs == pytest.approx(2000, rel=0.1)


def test_fitting_opens_only_the_experiments(tmp_path, monkeypatch, capsys):
    write_experiments(tmp_path)
    opened, listening = [], [True]

    def hook(event, arguments):
        if listening[0] and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    monkeypatch.setattr(sys, "argv", ["fit_predictor.py", "--results", str(tmp_path)])
    fit_predictor.main()
    listening[0] = False
    assert any(path.endswith("sweep.csv") for path in opened)
    assert not [path for path in opened if "a1_truth" in path or "occasions" in path]
    assert "worst" in capsys.readouterr().out


def test_the_fits_source_knows_no_truth_table():
    """Not in a branch that this test does not run, either."""
    tree = ast.parse(FIT.read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    code = [
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value != tree_doc(tree)
    ]
    assert not [n for n in names if "truth" in n or "grader" in n]
    assert not [t for t in code if isinstance(t, str) and "truth" in t.lower()]


def tree_doc(tree: ast.Module) -> str:
    return tree.body[0].value.value


def test_the_constants_are_printed_as_python_with_their_meaning():
    printed = fit_predictor.printed(perfmodel.H200)
    scope = {"Rates": perfmodel.Rates}
    exec(printed, scope)
    for name, value in asdict(perfmodel.H200).items():
        assert getattr(scope["H200"], name) == pytest.approx(value, rel=1e-3)
    assert "# the fp32 passes over [tokens, vocabulary]" in printed


# ---- how good it is ----------------------------------------------------------------------------


def errors(hidden: bool, quantity) -> list[float]:
    path = truth_path(hidden)
    steps = graded(read_truth(path), quantity) if path.is_file() else []
    if not steps:
        pytest.skip(f"no step that is graded on {quantity.what} has been measured yet")
    predict = getattr(perfmodel, quantity.function)
    return [abs(predict(*call(s)) / getattr(s, quantity.column) - 1) for s in steps]


@pytest.mark.parametrize("hidden", [False, True])
def test_memory_is_a_ledger(hidden):
    found = errors(hidden, MEMORY)
    assert statistics.median(found) <= 0.01
    assert max(found) <= 0.04


@pytest.mark.parametrize("hidden", [False, True])
def test_time_is_good_enough_for_all_points(hidden):
    found = errors(hidden, TIME)
    assert statistics.median(found) <= 0.05
    # Full credit wants four in five within 15%; these were within it but for host-bound steps.
    assert sum(error <= 0.15 for error in found) >= 0.9 * len(found)


def test_recomputation_costs_time_and_saves_memory():
    cfg = OlmoeConfig(n_layers=4)
    plain, again = ((cfg, 8, 1024, r) for r in (False, True))
    assert perfmodel.predict_step_ms(*again) > 1.1 * perfmodel.predict_step_ms(*plain)
    assert perfmodel.predict_peak_gib(*again) < 0.9 * perfmodel.predict_peak_gib(*plain)


def test_a_step_that_the_host_launches_too_slowly_takes_the_hosts_time():
    slow = replace(perfmodel.H200, host_forward_ms=50.0)
    step = (OlmoeConfig(n_layers=2), 1, 256, False)
    assert perfmodel.step_ms(slow, *step) > 100
    assert perfmodel.step_ms(perfmodel.H200, *step) < 20


# ---- a GPU that has never run a step ------------------------------------------------------------


def published() -> list:
    return read_truth(truth_path(hidden=False, gpu=gpu(L40)))


def test_the_l40s_published_steps_are_met():
    found = []
    for step in graded(published(), TIME):
        error = other_gpu.predict_step_ms_on(L40, *call(step)) / step.step_ms - 1
        assert abs(error) <= 0.30, step
        found.append(abs(error))
    assert len(found) == 5
    assert statistics.median(found) <= 0.12


def test_the_l40s_published_peaks_are_met():
    for step in graded(published(), MEMORY):
        cfg, size, seqlen, recompute = call(step)
        peak_gib = other_gpu.predict_peak_gib_on(L40, cfg, size, seqlen, recompute)
        if not recompute:
            peak_gib += other_gpu.keeps_more_bytes(cfg, size * seqlen) / 2**30
        assert peak_gib == pytest.approx(step.peak_gib, rel=0.03), step


def test_the_course_gpu_predicts_itself():
    step = (OlmoeConfig(n_layers=4), 4, 2048, True)
    on = other_gpu.predict_step_ms_on("NVIDIA H200", *step)
    assert on == perfmodel.predict_step_ms(*step)


def test_which_steps_do_not_fit_a_5090():
    steps = [(OlmoeConfig(n_layers=s.layers), *s[1:]) for s in (*PUBLIC, *HIDDEN)]
    too_large = [s for s in steps if not other_gpu.fits(RTX_5090, *s)]
    assert too_large
    assert len(too_large) < len(steps) / 4
    limit = gpu(RTX_5090).memory_gib
    for step in steps:
        peak_gib = perfmodel.predict_peak_gib(*step)
        if peak_gib > limit + 0.2:
            assert step in too_large
        if peak_gib < limit - 1:
            assert step not in too_large
    assert all(other_gpu.fits("NVIDIA H200", *s) for s in steps)


def test_a_gpu_with_more_of_everything_is_faster():
    step = (OlmoeConfig(n_layers=4), 8, 1024, False)
    l40, rtx = (other_gpu.predict_step_ms_on(name, *step) for name in (L40, RTX_5090))
    assert perfmodel.predict_step_ms(*step) < rtx < l40
