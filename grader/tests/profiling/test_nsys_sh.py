"""a1/nsys.sh against a program that behaves like the releases of nsys, and like their failures."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared import artifacts, provenance

from . import fake_nsys
from .sample import (
    ENV,
    MS,
    ROOT,
    STREAM,
    metric_values,
    range_csv,
    sqlite_export,
    sum_csv,
    train_ops,
    train_ranges,
)

NO_COUNTERS = (
    "note: this node does not let you read the GPU's performance counters; "
    "recording without GPU metrics."
)
FILES = ("ranges", "nvtx_gpu_proj_trace", "cuda_gpu_kern_sum", "cuda_api_sum")

# Stands in for the Python that runs the scripts: profile_step.py needs a GPU, and the summary takes
# a second to start, so it is real only where FAKE_SUMMARY is empty.
PYTHON = """#!/bin/sh
case $1 in
*/profile_step.py)
    printf '%s\\n' "$@" >>"$FAKE_ARGUMENTS"
    if [ -n "$FAKE_FAILURE" ]; then echo "profile_step.py: $FAKE_FAILURE" >&2; exit 1; fi
    echo "one step: 23.9 ms before the recording started, 29.5 ms while recording"
    while [ $# -gt 0 ]; do
        if [ "$1" = --run-note ]; then
            printf '{"run": "one", "started": "now", "recorder": "%s"}' "$NSYS_VERSION" >"$2"
        fi
        shift
    done
    ;;
*/ranges.py) [ -n "$FAKE_SUMMARY" ] || exec "$REAL_PYTHON" "$@" ;;
esac
"""


@pytest.fixture
def course(tmp_path):
    """The scripts in a course folder whose path has a space, and a recording for nsys to make."""
    folder = tmp_path / "my course"
    (folder / "a1").mkdir(parents=True)
    for name in ("nsys.sh", "ranges.py", "nsys_export.py", "recording.py"):
        shutil.copy(ROOT / "student" / "a1" / name, folder / "a1")
    shutil.copytree(ROOT / "shared", folder / "shared")
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    recording = tmp_path / "recording"
    recording.mkdir()
    range_csv(recording / "x_nvtx_gpu_proj_trace.csv", train_ranges(2))
    sum_csv(recording / "x_cuda_gpu_kern_sum.csv", "Instances", gemm=[5 * MS] * 16)
    sum_csv(recording / "x_cuda_api_sum.csv", "Num Calls", cudaLaunchKernel=[9000] * 16)
    samples = [(t * MS, metric_values(60, 50, 40, 30)) for t in range(100)]
    sqlite_export(recording / "x.sqlite", train_ops(2), metrics={STREAM: samples})
    return folder


def run(course, *arguments, nsys=None, **environment):
    env = ENV | {
        "PYTHONPATH": "",
        "PYTHON": str(course / "python"),
        "REAL_PYTHON": sys.executable,
        "FAKE_ARGUMENTS": str(course / "arguments"),
        "FAKE_FAILURE": "",
        "FAKE_SUMMARY": "",
        "NSYS": str(nsys or course / "nowhere" / "nsys"),
    }
    return subprocess.run(
        ["a1/nsys.sh", *arguments], cwd=course, env=env | environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


def nsys_for(course, **behaviour):
    return fake_nsys.install(course / "nsight bin", course.parent / "recording", **behaviour)


def profiled(course) -> list[list[str]]:
    """The arguments of every `nsys profile` that ran the application."""
    return [json.loads(line) for line in (course / "nsight bin/profiled.jsonl").open()]


def left_behind(course) -> set[str]:
    return {p.name for p in (course / "reports/a1").iterdir()}


# --- recordings that succeed ----------------------------------------------------------------------


def test_a_recording(course):
    done = run(course, "demo", "--layers", "4", "--weights", "a folder", nsys=nsys_for(course))
    assert done.returncode == 0, done.stderr
    for kind in FILES:
        path = course / "results/a1" / f"demo_{kind}.csv"
        assert not artifacts.read(path).empty
        assert provenance.read_sidecar(path)[0]["run"] == "one"
    assert left_behind(course) == {"demo.nsys-rep", "demo.sqlite", "demo.run.json"}
    sidecar = provenance.read_sidecar(course / "results/a1/demo_ranges.csv")
    assert sidecar[0]["recorder"] == "NVIDIA Nsight Systems version 2025.3.1.90-253135822126v0"

    (arguments,) = profiled(course)
    assert "--trace=cuda,nvtx" in arguments
    assert "--gpu-metrics-devices=all" in arguments
    assert "--capture-range=cudaProfilerApi" in arguments
    passed = (course / "arguments").read_text().split("\n")
    assert passed[-5:-1] == ["--layers", "4", "--weights", "a folder"]

    assert "one step: 23.9 ms before the recording started" in done.stdout
    assert "NVIDIA H200: 132 SMs" in done.stdout
    assert "note:" not in done.stdout
    assert done.stdout.endswith("wrote reports/a1/demo.nsys-rep and results/a1/demo_*.csv\n")


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ({"refuses": "permission"}, NO_COUNTERS),
        ({"refuses": "late"}, NO_COUNTERS),
        ({"refuses": "unsupported"}, "note: nsys cannot sample this GPU's performance counters"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_counters_that_are_refused_cost_one_line(course, behaviour, says):
    done = run(course, "demo", nsys=nsys_for(course, **behaviour), FAKE_SUMMARY="yes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("note:") == 1
    assert says in done.stdout
    (arguments,) = profiled(course)  # the application ran once
    assert not any("gpu-metrics" in a for a in arguments)


def test_an_old_release(course):
    """2022: another name of the option, and other names of the reports."""
    old = {"metrics_flag": "--gpu-metrics-device", "old_reports": True, "version": "2022.1.3.3"}
    done = run(course, "demo", nsys=nsys_for(course, **old), FAKE_SUMMARY="yes")
    assert done.returncode == 0, done.stderr
    assert "--gpu-metrics-device=all" in profiled(course)[0]
    assert {p.name for p in (course / "results/a1").glob("*.csv")} == {
        f"demo_{kind}.csv" for kind in FILES[1:]
    }


def test_nsys_that_complains_but_records(course):
    done = run(course, "demo", nsys=nsys_for(course, exit=3), FAKE_SUMMARY="yes")
    assert done.returncode == 0
    assert "note: nsys ended with exit code 3, but wrote a recording." in done.stdout


def test_nsys_on_the_path(course):
    nsys = nsys_for(course)
    done = run(course, "demo", NSYS="", FAKE_SUMMARY="yes", PATH=f"{nsys.parent}:{ENV['PATH']}")
    assert done.returncode == 0, done.stderr


def test_a_pythonpath_that_is_set_comes_first(course):
    """So that the staff's solution, put before the stubs, is what runs."""
    first = course / "first" / "shared"
    first.mkdir(parents=True)
    for file in (ROOT / "shared").iterdir():
        if file.is_file():
            shutil.copy(file, first)
    (first / "assignment.py").write_text('raise ImportError("the first folder was asked")')
    done = run(course, "demo", nsys=nsys_for(course), PYTHONPATH=str(first.parent))
    assert "the first folder was asked" in done.stderr


# --- recordings that fail -------------------------------------------------------------------------


@pytest.fixture
def good_before(course):
    """A good recording called demo is there already. Its files' contents."""
    for file in ("results/a1/demo_ranges.csv", "reports/a1/demo.nsys-rep", "results/a1/x.csv"):
        (course / file).parent.mkdir(parents=True, exist_ok=True)
        (course / file).write_text(f"{file} of the last time")
    return contents(course)


def contents(course) -> dict[Path, bytes]:
    return {p: p.read_bytes() for f in ("results", "reports") for p in (course / f).rglob("*.*")}


FAILURES = {
    "no report, and exit code 0": ({"report": False}, {}, "nsys wrote no recording (exit code 0)"),
    "no kernels": ({"tables": False}, {}, "the recording could not be summarized"),
    "an export that fails": ({"export": False}, {}, "nsys could not export the recording"),
    "a script that fails": (
        {},
        {"FAKE_FAILURE": "out of memory"},
        "the run ended with exit code 1 before anything was recorded",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_is_said_and_leaves_the_last_good_recording(course, good_before, failure):
    behaviour, environment, says = FAILURES[failure]
    done = run(course, "demo", nsys=nsys_for(course, **behaviour), **environment)
    assert done.returncode == 1
    assert done.stderr.strip().split("\n")[-1].startswith(f"nsys.sh: {says}")
    assert contents(course) == good_before


@pytest.mark.parametrize(
    ("behaviour", "line"),
    [
        ({"report": False}, "No reports were generated"),
        ({"tables": False}, "does not contain CUDA kernel data."),
        ({"export": False}, "Importer error: file is corrupt"),
    ],
    ids=str,
)
def test_a_failure_shows_nsyss_own_last_lines(course, behaviour, line):
    done = run(course, "demo", nsys=nsys_for(course, **behaviour))
    assert "--- the last lines of nsys ---" in done.stderr
    assert line in done.stderr
    assert left_behind(course) == set()


def test_a_recording_without_kernels_is_never_a_table_of_zeros(course):
    """Header-only tables and an export without kernels, as a node without a GPU leaves them."""
    recording = course.parent / "recording"
    for path in recording.glob("*.csv"):
        path.write_text(path.read_text().split("\n")[0] + "\n")
    (recording / "x.sqlite").unlink()
    sqlite_export(recording / "x.sqlite", [])
    done = run(course, "demo", nsys=nsys_for(course))
    assert done.returncode == 1
    assert "no kernel ran in this recording" in done.stderr
    assert not list((course / "results/a1").iterdir())


def test_without_nsys_it_says_what_to_do(course):
    done = run(course, "demo")
    assert done.returncode == 1
    assert done.stderr.startswith("nsys.sh: no nsys here")
    assert "--recorder torch" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("torch", [["--recorder", "torch"], ["--recorder=torch"]], ids=str)
def test_the_other_recorder_needs_no_nsys(course, torch):
    done = run(course, "demo", "--layers", "4", *torch)
    assert done.returncode == 0, done.stderr
    passed = (course / "arguments").read_text().split("\n")[1:-1]
    assert passed == ["--name", "demo", "--layers", "4", *torch]


def test_a_snapshot_called_torch_is_not_a_recorder(course):
    done = run(course, "demo", "--memory-snapshot", "torch")
    assert "no nsys here" in done.stderr


@pytest.mark.parametrize("name", [None, "", "../x", "--layers", "a b", ".hidden"])
def test_a_recording_needs_a_name(course, name):
    done = run(course, *([] if name is None else [name]), nsys=nsys_for(course))
    assert done.returncode == 1
    assert done.stderr.startswith("nsys.sh: usage: a1/nsys.sh NAME")
