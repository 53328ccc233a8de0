"""The data sheets: staff who add a GPU are told what is missing, and a wrong name is answered."""

import subprocess
import sys
import tomllib

import pytest

from shared import gpus
from shared.assignment import assignment
from shared.gpus import COURSE_GPU, GPUS, SHEETS_FILE, UnknownGpuError, gpu, read_sheets


def test_the_course_gpu_is_the_one_of_the_assignment():
    assert gpu(assignment().gpu) == COURSE_GPU


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("NVIDIA L40", {"peak_tflops": 181, "peak_gbs": 864, "sms": 142, "memory_gib": 44.4}),
        ("NVIDIA H200", {"peak_tflops": 989, "peak_gbs": 4800, "sms": 132, "l2_mib": 60}),
        ("NVIDIA GeForce RTX 5090", {"peak_gbs": 1792, "sms": 170, "l2_mib": 96}),
    ],
)
def test_figures_that_the_assignment_quotes(name, figures):
    assert {figure: getattr(gpu(name), figure) for figure in figures} == figures


def test_the_ridge_point_that_the_assignment_quotes():
    assert round(gpu("L40").ridge_flops_per_byte, -1) == 210


def test_no_published_measurement_exceeds_the_highest_peak():
    tflops = 2 * 8192**3 / 4.9836e-3 / 1e12  # a large GEMM on the published RTX 5090
    sheet = gpu("RTX 5090")
    assert sheet.peak_tflops < tflops < sheet.max_tflops


@pytest.mark.parametrize("name", ["NVIDIA H200", "H200", "nvidia  h200"])
def test_names_and_aliases(name):
    assert gpu(name).name == "NVIDIA H200"


def test_an_unknown_gpu_is_answered_with_the_known_ones():
    with pytest.raises(UnknownGpuError) as caught:
        gpu("Voodoo 2")
    assert "'Voodoo 2'" in str(caught.value)
    assert all(one.name in str(caught.value) for one in GPUS)
    assert str(SHEETS_FILE.parent.parent) not in str(caught.value)


def test_folders_of_gpus_are_distinct():
    assert gpu("H200").slug == "nvidia-h200"
    assert len({one.slug for one in GPUS}) == len(GPUS)


SHEET = tomllib.loads(SHEETS_FILE.read_text(encoding="utf-8"))["gpu"][0]


def _toml(sheet: dict) -> str:
    rows = [f"{k} = {v!r}" for k, v in sheet.items() if k != "source"]
    rows += ["[gpu.source]", *(f"{k} = {v!r}" for k, v in sheet["source"].items())]
    return "\n".join(["[[gpu]]", *rows, ""])


def _without(key: str) -> dict:
    return {k: v for k, v in SHEET.items() if k != key}


@pytest.mark.parametrize(
    ("sheets", "told"),
    [
        ([_without("peak_gbs")], "missing peak_gbs"),
        ([{**SHEET, "peak_tflop": 1.0}], "unknown peak_tflop"),
        ([{**SHEET, "source": {}}], "no source for"),
        ([{**SHEET, "peak_gbs": -1.0}], "peak_gbs must be positive"),
        ([{**SHEET, "sms": "132"}], "sms must be a number"),
        ([{**SHEET, "max_sm_mhz": 10}], "max_sm_mhz is below boost_mhz"),
        ([SHEET, {**SHEET, "name": "another"}], "is also a name of NVIDIA H200"),
    ],
)
def test_a_damaged_sheet_is_refused_by_name(tmp_path, sheets, told):
    path = tmp_path / "gpus.toml"
    path.write_text("".join(_toml(s) for s in sheets), encoding="utf-8")
    with pytest.raises(ValueError, match=told) as caught:
        read_sheets(path)
    assert "NVIDIA H200" in str(caught.value)


def test_no_torch_is_needed():
    code = "import sys, shared.gpus; sys.exit('torch' in sys.modules)"
    root = str(SHEETS_FILE.parents[1])
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
    assert gpus.COURSE_GPU
