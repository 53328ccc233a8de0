"""A newcomer's walk: clone the release, run the tests, do the exercises, hand in, be scored."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

from grader.suite.places import ROOT
from shared.assignment import assignment

SOME = "2,6"  # exercises of two of the files: the whole suite takes its time
RESULTS = ROOT / "staff" / "results" / "a1"


def put_in(clone, *files: str) -> None:
    """The staff solution of these files, as if the student had written it."""
    for file in files:
        solved = (ROOT / "staff" / file).read_text()
        assert "BEGIN SOLUTION" in solved
        (clone / file).write_text(solved)


def table(text: str) -> dict[str, str]:
    """{"Coding 2": "4/4", ...} of the score table in `text`."""
    rows = re.findall(r"^(\w+(?: \d+)?) +(?:OK|FAIL)? +([\d.]+/[\d.]+)$", text, re.MULTILINE)
    return dict(rows)


@pytest.fixture
def newcomer(laptop, built, tmp_path):
    """A machine with a clone of the course's repository, made with git."""
    course = tmp_path / "course"
    shutil.copytree(built[0], course)
    who = ("-c", "user.name=Staff", "-c", "user.email=staff@example.org")
    for command in (
        ("init", "--quiet"),
        ("add", "--all"),
        (*who, "commit", "--quiet", "--message", "Release"),
    ):
        subprocess.run(["git", "-C", str(course), *command], check=True)
    shutil.rmtree(laptop.clone)
    laptop.clone.parent.mkdir(exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", str(course), str(laptop.clone)], check=True)
    laptop.environ["COURSE_DIR"] = str(tmp_path / "users" / "ada")
    return laptop


def test_the_walk(newcomer, tmp_path):
    clone = newcomer.clone

    def scores(*settings: str) -> dict[str, str]:
        done = newcomer.run("make", "test", "TIER=virtual", *settings)
        assert "Total" in done.stdout, done.stdout + done.stderr
        return table(done.stdout)

    # Setup passes, everything else says in a line that it is not implemented.
    done = newcomer.run("make", "test", "TIER=virtual", f"C={SOME}", "E=4")
    assert table(done.stdout) == {
        "Coding 2": "0/4", "Coding 6": "0/8", "Experiment 4": "0/5", "Total": "0/17",
    }, done.stdout + done.stderr  # fmt: skip
    lines = done.stdout.splitlines()
    assert "C6.1 to C6.4  olmoe/train.py, line 88: NotImplementedError: Coding 6" in "\n".join(
        re.sub(r"line \d+", "line 88", line) for line in lines
    )
    assert any(line.startswith("E4.1 to E4.4  not run yet: no micro_batches.csv") for line in lines)
    assert len(lines) < 20, done.stdout
    assert done.returncode != 0

    # The score rises, file by file, and nothing else changes.
    put_in(clone, "a1/perfmodel.py")
    assert scores(f"C={SOME}") == {"Coding 2": "4/4", "Coding 6": "0/8", "Total": "4/12"}
    put_in(clone, "olmoe/train.py")
    assert scores(f"C={SOME}") == {"Coding 2": "4/4", "Coding 6": "8/8", "Total": "12/12"}

    # Hand in what there is; the archive is what the grader scores, with the same result.
    handed = newcomer.run("make", "handin")
    assert handed.returncode == 0, handed.stderr
    assert "Coding 1: cuda_time in olmoe/prof.py: not implemented yet" in handed.stdout
    archive = re.search(r"^Handed in 5 files \(.* MB\) as (.*\.tar\.gz)$", handed.stdout, re.M)[1]
    assert archive.startswith(newcomer.environ["COURSE_DIR"] + "/handin/a1/")
    status = newcomer.run("make", "handin", "STATUS=1")
    assert archive.rpartition("/")[2] + "   <- counts" in status.stdout
    done = subprocess.run(
        [sys.executable, "grader/score.py", archive, "--coding", SOME, "--tier", "virtual",
         "-o", str(tmp_path / "results.json"), "--hidden-tests-unshielded"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    public, hidden = done.stdout.split(" hidden ")
    assert table(public) == table(hidden) == scores_of(12)
    assert json.loads((tmp_path / "results.json").read_text())["score"] == 24
    assert not newcomer.run("git", "status", "--porcelain", "handin").stdout


def scores_of(total: int) -> dict[str, str]:
    return {"Coding 2": "4/4", "Coding 6": "8/8", "Total": f"{total}/{total}"}


def test_a_finished_assignment_has_all_points(newcomer):
    """The staff solution and the staff's artifacts: 130 of 130, and nothing is left to say."""
    put_in(newcomer.clone, *assignment().modules.values())
    shutil.copytree(RESULTS, newcomer.clone / "results/a1")
    done = newcomer.run("make", "test", "TIER=virtual")
    points = sum(e.points for e in assignment().exercises if e.kind != "written")
    assert table(done.stdout)["Total"] == f"{points:g}/{points:g}", done.stdout + done.stderr
    assert done.returncode == 0
    assert re.search(r"^Setup +OK", done.stdout, re.MULTILINE)
    assert "Vouched for: 69 points need no GPU (C2 to C3, C8 to C9, E2 to E7)." in done.stdout
    assert "Judged on a virtual GPU: 61 points (C1, C4 to C7)." in done.stdout
    dry = newcomer.run("make", "handin", "DRY=1")
    assert "not implemented" not in dry.stdout and "Experiment" not in dry.stdout
    assert not (newcomer.clone / "handin").exists()


def test_the_archive_holds_the_five_files(newcomer):
    out = newcomer.run("make", "handin").stdout
    archive = re.search(r" as (.*\.tar\.gz)$", out, re.MULTILINE)[1]
    with tarfile.open(archive) as opened:
        assert sorted(opened.getnames()) == sorted(["manifest.json", *assignment().files])
