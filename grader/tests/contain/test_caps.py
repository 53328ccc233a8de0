"""Exceeding a cap costs the test it happens in, says which cap and value, and no other test."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from shared.assignment import assignment

from ...judge import contain, stage
from ...judge.solver import START_S, Solver
from ...judge.watch import out_of_service
from ...proof.corpus import solution
from ...solver import shield

LIMITS = dataclasses.replace(
    assignment().limits,
    test_s=20,
    cpu_s=1,
    written_mib=8,
    written_files=300,
    printed_mib=4,
    processes=10,
)
CALL = {"function": "gemm_flops", "calls": [[1, 2, 3]]}
UNTOUCHED = {"function": "gemm_bytes", "calls": [[1, 2, 3]]}
# Time is virtual beside a hand-in: what is to last must block.
HEAD = """def gemm_flops(m, k, n):
    import os, tempfile
    temp = tempfile.gettempdir()
    hang = lambda: os.read(os.pipe()[0], 1)
"""


def _rungs():
    # The first one has its private folder on a file system of its own, the second one on the disk.
    return [contain.BUBBLEWRAP, contain.LANDLOCK]


@pytest.fixture(scope="module", params=_rungs(), ids=lambda rung: rung.name)
def solver(request, tmp_path_factory):
    staged = tmp_path_factory.mktemp("caps") / "staged"
    staged.mkdir()
    stage.lay_out(staged)
    found = contain.attempt(request.param, staged)
    if not found.works:
        pytest.skip(f"{request.param.name}: {found.why_not}")
    with Solver(staged, "virtual", found.rung, LIMITS) as started:
        yield started
    assert [p.name for p in staged.parent.iterdir()] == ["staged"]


@pytest.fixture
def using(solver, tmp_path):
    count = len(list(solver.staged.iterdir()))

    def use(body: str) -> Solver:
        files = solution()
        code = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
        files["a1/perfmodel.py"] += f"\n\n{code}".encode()
        solver.use(stage.put_in(solver.staged / str(count), files), tmp_path)
        assert not solver.broken
        return solver

    return use


@pytest.mark.parametrize(
    "body, says",
    [
        ("while True:\n    pass", "used more than 1 s of processor time"),
        (
            "for i in range(4):\n    open(f'{temp}/{i}', 'wb').write(bytes(3 << 20))\nhang()",
            "wrote more than 8 MiB of files",
        ),
        (
            "for i in range(1000):\n    open(f'{temp}/{i}', 'wb').close()\nhang()",
            "wrote more than 300 files",
        ),
        ("while True:\n    print('x' * 100_000)", "printed more than 4 MiB"),
        (
            "for _ in range(12):\n    if os.fork() == 0:\n        hang()\nhang()",
            "had more than 10 processes",
        ),
    ],
    ids=["processor", "bytes", "files", "printed", "processes"],
)
def test_it_is_named_with_its_value_and_the_next_test_is_judged(using, body, says):
    solver = using(body)
    assert solver.observe("perfmodel.values", CALL, "x").ended == says
    assert solver.observe("perfmodel.values", UNTOUCHED, "y").value == [22]


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_zygote_that_is_stopped_or_killed_is_replaced_at_once(using, blow):
    """By whatever means: no attack that we know does it where Landlock or seccomp works."""
    solver = using("hang()")
    later = f"sleep 0.5; kill -{int(blow)} {solver._zygote.pid}"
    with subprocess.Popen(["sh", "-c", later]):
        ended = solver.observe("perfmodel.values", CALL, "x").ended
    # Where no namespace ends with the zygote, its child ends by a signal, perhaps seen first.
    assert "the process that tests it" in ended or ended == "ended the Python process"
    begin = time.monotonic()
    assert solver.observe("perfmodel.values", UNTOUCHED, "y").value == [22]
    assert not out_of_service(solver._zygote)
    assert time.monotonic() - begin < START_S / 2  # it was not waited for


def test_a_stopped_zygote_is_told_from_a_dead_one():
    process = psutil.Popen(["sleep", "60"])
    assert out_of_service(process) == ""
    process.suspend()
    os.waitpid(process.pid, os.WUNTRACED)
    assert out_of_service(process) == "stopped"
    process.kill()
    process.wait()
    assert out_of_service(process) == "ended"


def test_the_private_folder_is_emptied_whatever_is_in_it(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    private = tmp_path / "private"
    (private / "a" / "closed").mkdir(parents=True)
    (private / "a" / "closed" / "file").touch()
    (private / "a" / "closed").chmod(0)
    (private / "link").symlink_to(outside)
    (private / "a" / "link").symlink_to(outside)
    os.mkfifo(private / "fifo")
    assert shield.emptied(str(private))
    assert list(private.iterdir()) == []
    assert (outside / "file").exists() and outside.stat().st_mode & 0o777 == 0o755


def test_a_folder_that_is_not_there_is_not_called_empty():
    assert not shield.emptied(str(Path("/nowhere/at/all")))
