"""`make test` on a student's folder: verdict and words are those of the judge."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ...proof.corpus import solution
from ...suite.places import ROOT
from ...suite.plugin import NUMBER

LINE = b"\n"


def run(folder, *arguments, **environment) -> subprocess.CompletedProcess:
    """pytest on the public suite, as the Makefile calls it."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "grader/public", "-q", "-rN", "--no-header"),
            *("--tb=short", "--tier", "virtual", "--who", str(folder), *arguments),
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def written(folder, files: dict[str, bytes]):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_broken_files_cost_their_exercises_and_are_explained_as_the_judge_does(tmp_path):
    """The words are those that grader/proof/broken expects of the judge."""
    files = solution()
    files["olmoe/prof.py"] += b"\ndef more():\n    return max(1, 2\n"
    files["olmoe/train.py"] += b"\nimport os\n\nos._exit(0)\n"
    files["a1/perfmodel.py"] += b"\nwhile True:\n    pass\n"
    shorter = tmp_path / "shorter.py"
    shorter.write_text(
        "from shared.assignment import assignment\n\n"
        "object.__setattr__(assignment().limits, 'import_s', 3)\n"
    )
    folder = written(tmp_path / "clone", files)
    done = run(folder, "--coding", "1,2,5,6", "-p", "shorter", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    only_define = "Importing must only define things: move what it runs into a function."
    for says in (
        f"olmoe/prof.py, line {files['olmoe/prof.py'].count(LINE)}: SyntaxError: '(' was never "
        "closed. The file cannot be imported, so none of its exercises can be tested",
        f"olmoe/train.py: importing it ended the Python process with exit status 0. {only_define}",
        "importing it took longer than 3 s. " + only_define,
    ):
        assert says in done.stdout
    last = files["a1/perfmodel.py"].count(LINE)
    assert any(f"a1/perfmodel.py, line {n}: importing" in done.stdout for n in (last, last - 1))
    table = [line.split() for line in done.stdout.splitlines() if line.startswith("Coding")]
    assert table == [
        ["Coding", "1", "FAIL", "0/13"],
        ["Coding", "2", "FAIL", "0/4"],
        ["Coding", "5", "OK", "12/12"],
        ["Coding", "6", "FAIL", "0/8"],
    ]


def test_what_is_left_changed_is_said_though_the_tests_pass(tmp_path):
    files = solution()
    files["olmoe/prof.py"] += b"\ntorch.set_default_dtype(torch.float64)\n"
    files["a1/perfmodel.py"] += (
        b"\n\n_flops = gemm_flops\n\n\ndef gemm_flops(m, k, n):\n    import torch\n\n"
        b"    torch.set_grad_enabled(False)\n    return _flops(m, k, n)\n"
    )
    done = run(written(tmp_path, files), "--coding", "2")
    assert done.returncode == 0
    assert "importing the file changes torch's default dtype for everybody" in done.stdout
    assert "C2.1 passed, but: a1/perfmodel.py, line" in done.stdout


def test_a_folder_that_is_not_there_is_named(tmp_path):
    done = run(tmp_path / "nowhere", "--coding", "2")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no such folder; give student, staff or a folder" in done.stderr


def test_numbers_of_tests():
    assert [NUMBER.fullmatch(n) is not None for n in ("C1.1", "E7.2", "S.3", "W1.1", "C.1")] == [
        *(True, True, True),
        *(False, False),
    ]
