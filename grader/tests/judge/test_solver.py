"""The solver: each probe by itself, bounded from outside, and nothing left when it is over."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from ...judge import contain, one, stage
from ...judge import solver as solver_module
from ...judge.solver import Solver, SolverFault, _Output
from ...proof.corpus import solution, stubs
from ...solver import frames
from ...suite import wire
from ...suite.observe import Request
from .conftest import LIMITS
from .samples import tar_gz

CALL = {"function": "gemm_flops", "calls": [[1, 2, 3]]}


@pytest.fixture
def using(started, tmp_path_factory):
    """using(code) has the solver use the staff solution with `code` below a1/perfmodel.py."""
    made = []

    def use(code: str = "", **changed: bytes) -> Solver:
        files = solution()
        files["a1/perfmodel.py"] += f"\n\n{code}\n".encode()
        folder = Path(tempfile.mkdtemp(dir=started.staged))
        folder.chmod(0o755)
        made.append(folder)
        started.use(stage.put_in(folder / "handin", files | changed), folder / "results")
        return started

    yield use
    for folder in made:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def processes_of(solver: Solver) -> list[psutil.Process]:
    return [
        p for p in solver._zygote.children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE
    ]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_probe_answers(using):
    solver = using()
    assert not solver.broken and not solver.warned
    reply = solver.observe("perfmodel.values", CALL, "public/C2")
    assert reply.value == [12] and not reply.failed and reply.printed == ""


def test_every_probe_has_a_process_of_its_own(using):
    solver = using(
        "import a1.perfmodel\ncalls = 0\n\n\ndef gemm_flops(m, k, n):\n"
        "    a1.perfmodel.calls += 1\n    import tempfile\n"
        "    open(tempfile.gettempdir() + '/left', 'x').close()\n"
        "    return a1.perfmodel.calls"
    )
    assert [solver.observe("perfmodel.values", CALL, "x").value for _ in range(3)] == [[1]] * 3


def test_nothing_is_left_when_a_probe_is_over(using):
    before = open_files()
    solver = using(
        "def gemm_flops(m, k, n):\n    import os, subprocess, threading, time\n"
        "    subprocess.Popen(['sleep', '4711'], start_new_session=True)\n"
        "    threading.Thread(target=time.sleep, args=(4711,)).start()\n"
        "    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n"
        "            while True:\n                time.sleep(1)\n        os._exit(0)\n"
        "    return 1"
    )
    for _ in range(3):
        assert solver.observe("perfmodel.values", CALL, "x").value == [1]
        assert processes_of(solver) == []
    assert open_files() == before


def test_a_process_that_forks_all_the_time_ends_with_its_test(using):
    solver = using(
        "def gemm_flops(m, k, n):\n    import os, time\n    while True:\n"
        "        if os.fork():\n            time.sleep(0.01)\n            os._exit(0)\n"
    )
    reply = solver.observe("perfmodel.values", CALL, "x")
    assert reply.ended
    assert processes_of(solver) == []


def test_what_is_printed_is_kept_up_to_a_bound_and_from_the_end(using):
    solver = using(
        "def gemm_flops(m, k, n):\n    print('x' * 3_000_000)\n    print('the end')\n    return 1"
    )
    printed = solver.observe("perfmodel.values", CALL, "x").printed
    assert printed.endswith("the end") and len(printed) <= LIMITS.printed_bytes


def test_the_process_that_forks_cannot_be_written_to(using):
    """Else one test's code could decide what the next one's finds."""
    solver = using(
        "def gemm_flops(m, k, n):\n    import os\n"
        "    try:\n        open(f'/proc/{os.getppid()}/mem', 'r+b').close()\n"
        "    except OSError as error:\n        return type(error).__name__\n    return 'opened'"
    )
    if solver.rung is contain.NONE:
        pytest.skip("no containment on this machine")
    assert solver.observe("perfmodel.values", CALL, "x").value == ["PermissionError"]


def test_no_network_and_nothing_to_write_but_the_private_folder(using):
    solver = using(
        "def gemm_flops(m, k, n):\n    import os, socket\n    found = []\n"
        "    try:\n        socket.create_connection(('127.0.0.1', 22), 1)\n"
        "        found.append('network')\n"
        "    except ConnectionRefusedError:\n        pass\n"
        "    except OSError as error:\n        pass\n"
        "    for folder in ('/', '/usr', os.path.dirname(__file__), os.path.expanduser('~root')):\n"
        "        try:\n            open(f'{folder}/planted', 'w').close()\n"
        "            found.append(folder)\n        except OSError:\n            pass\n"
        "    return repr(found)"
    )
    if solver.rung is not contain.BUBBLEWRAP:
        pytest.skip("bubblewrap does not work on this machine")
    assert solver.observe("perfmodel.values", CALL, "x").value == ["[]"]


@pytest.mark.parametrize(
    "code, says",
    [
        ("import os; os.kill(os.getpid(), 11)", "ended the Python process with signal SIGSEGV"),
        ("import os; os.kill(os.getpid(), 40)", "ended the Python process with signal 40"),
        ("import os; os._exit(7)", "ended the Python process with exit status 7"),
        ("import os; os.write(3, b'garbage' * 9)", "answered with something unreadable"),
        ("import os; os.close(3)", "ended the Python process"),
    ],
)
def test_how_a_process_ended_is_said(using, code, says):
    reply = using(f"def gemm_flops(m, k, n):\n    {code}").observe("perfmodel.values", CALL, "x")
    assert reply.ended.startswith(says)
    assert reply.where in ("", "a1/perfmodel.py, line " + reply.where.rpartition(" ")[2])


def test_a_message_that_claims_gigabytes_is_not_waited_for(using):
    head = frames.message(frames.REPLY, bytes(16), b"")[:17] + (0xFFFFFFFF).to_bytes(4, "big")
    solver = using(f"def gemm_flops(m, k, n):\n    import os, time\n    os.write(3, {head!r})")
    begin = time.monotonic()
    reply = solver.observe("perfmodel.values", CALL, "x")
    assert "not one of ours" in reply.ended and time.monotonic() - begin < LIMITS.test_s


def test_a_forged_account_of_an_exception_is_refused(using):
    body = wire.encode({"raised": {"type": 3}, "left": []})
    solver = using(
        "def gemm_flops(m, k, n):\n    import os, sys\n    from grade.solver import frames\n"
        "    caller = sys._getframe()\n    while 'number' not in caller.f_locals:\n"
        "        caller = caller.f_back\n    number = caller.f_locals['number']\n"
        f"    os.write(3, frames.message(frames.REPLY, number, {body!r}))"
    )
    assert "wrong fields" in solver.observe("perfmodel.values", CALL, "x").ended


def test_an_answer_to_what_was_not_asked_is_refused(using):
    forged = frames.message(frames.REPLY, bytes(16), wire.encode({"value": [12], "left": []}))
    solver = using(f"def gemm_flops(m, k, n):\n    import os\n    os.write(3, {forged!r})")
    assert "what it was not asked" in solver.observe("perfmodel.values", CALL, "x").ended


def test_an_answer_left_in_advance_does_not_count_as_the_next_one(using, monkeypatch):
    """On a real GPU one process answers several requests."""
    body = wire.encode({"value": ["forged"], "left": []})
    solver = using(
        "def gemm_flops(m, k, n):\n    import os, threading, time\n"
        "    from grade.solver import frames\n"
        "    def later():\n        time.sleep(0.3)\n"
        f"        os.write(3, frames.message(frames.REPLY, bytes(16), {body!r}))\n"
        "    threading.Thread(target=later).start()\n    return 1"
    )
    monkeypatch.setattr(solver, "tier", "cuda")  # for the judge alone; the request says virtual
    monkeypatch.setattr(
        solver_module, "Request", lambda p, a, _, *rest: Request(p, a, "virtual", *rest)
    )
    assert solver.observe("perfmodel.values", CALL, "x").value == [1]
    time.sleep(0.6)
    bytes_of = {"function": "gemm_bytes", "calls": [[1, 2, 3]]}
    assert "what it was not asked" in solver.observe("perfmodel.values", bytes_of, "x").ended
    assert solver.observe("perfmodel.values", bytes_of, "x").value == [22]


def test_a_hand_in_that_kills_everything_it_can_hurts_the_test_it_is_in(started, using):
    if started.rung is not contain.BUBBLEWRAP:
        pytest.skip("without namespaces of its own it would kill this very test")
    solver = using("def gemm_flops(m, k, n):\n    import os\n    os.kill(-1, 9)")
    solver.observe("perfmodel.values", CALL, "x")  # whatever becomes of this one
    bytes_of = {"function": "gemm_bytes", "calls": [[1, 2, 3]]}
    assert solver.observe("perfmodel.values", bytes_of, "x").value == [22]


def test_the_culprit_is_named_and_not_the_files_that_import_it(using):
    train = solution()["olmoe/train.py"] + b"\nimport olmoe.prof\n"
    solver = using(
        **{"olmoe/prof.py": b"import torch\n\nraise ValueError('here')\n", "olmoe/train.py": train}
    )
    assert list(solver.broken) == ["olmoe/prof.py"]
    problem = solver.broken["olmoe/prof.py"]
    assert problem.message.startswith("olmoe/prof.py, line 3: ValueError: here.")
    assert "Traceback" in problem.traceback and "train.py" not in problem.message


def test_a_file_that_cannot_even_be_compiled_is_the_one_blamed(using):
    solver = using(**{"olmoe/train.py": b"a = 1\0\n"})
    assert list(solver.broken) == ["olmoe/train.py"]


def test_every_broken_file_is_named(using):
    broken = {f: b"import nowhere\n" for f in solution()}
    assert set(using(**broken).broken) == set(broken)


def test_an_import_cannot_blame_something_else(using):
    """What a process says of its own imports is not trusted."""
    told = frames.message(
        frames.IMPORTING, bytes(16), wire.encode(["olmoe/train.py", "../../etc/passwd"])
    )
    code = f"import os\n\nos.write(3, {told!r})\nos._exit(3)\n".encode()
    broken = using(**{"olmoe/prof.py": code}).broken
    assert set(broken) <= set(solution())


def test_stubs_are_not_broken(started, using):
    assert not using(**stubs()).broken


# ---- Its life -----------------------------------------------------------------------------------


def test_no_process_no_folder_and_no_open_file_survive_a_hand_in(tmp_path, monkeypatch):
    files = solution()
    files["a1/perfmodel.py"] += (
        b"\n\ndef gemm_flops(m, k, n):\n    import subprocess\n"
        b"    subprocess.Popen(['sleep', '4711'], start_new_session=True)\n"
        b"    return 2 * m * k * n\n"
    )
    upload = tmp_path / "handin.tar.gz"
    upload.write_bytes(tar_gz(files))
    own = Path(tempfile.mkdtemp(prefix="everything-"))
    own.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    children, fds = set(psutil.Process().children(recursive=True)), open_files()
    results = one.judge(upload, None, one.Options(select=("--coding=2",)))
    assert results.score and not results.grader_fault
    assert os.listdir(own) == []
    own.rmdir()
    left = set(psutil.Process().children(recursive=True)) - children
    assert not psutil.wait_procs(left, timeout=5)[1]
    assert open_files() == fds


def test_a_solver_that_cannot_start_says_why_and_leaves_nothing(tmp_path):
    fds = open_files()
    solver = Solver(tmp_path, "virtual", contain.NONE, LIMITS)
    with pytest.raises(SolverFault, match="No module named 'grade'"):
        solver.__enter__()
    assert solver._process.poll() is not None
    del solver
    assert open_files() == fds


def test_the_environment_passes_on_nothing_but_what_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    environment = contain.Cell(contain.NONE, tmp_path, LIMITS).environment()
    assert "secret" not in environment.values()
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"


def test_what_the_solver_sees_holds_no_suite_and_no_solution(tmp_path):
    stage.lay_out(tmp_path)
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert {"released/grade/suite/wire.py", "released/olmoe/prof.py"} <= files
    for file in files:
        assert not any(part in file for part in ("public", "hidden", "staff", "proof", "judge"))
        text = (tmp_path / file).read_bytes()
        assert b"BEGIN SOLUTION" not in text or file.startswith("released/grade")


# ---- Parts --------------------------------------------------------------------------------------


def test_output_keeps_its_end_whatever_the_size():
    output = _Output(10)
    for piece in (b"abc", b"d" * 40, b"the end!"):
        os.write(output.write_fd, piece)
        output.drain()
    assert output.take() == "ddthe end!" and output.take() == ""
    output.close()


def test_messages_arrive_whole_however_they_are_cut():
    sent = [(frames.IMPORTING, b""), (frames.REPLY, b"abc" * 50), (frames.IMPORTING, b"x")]
    number = frames.draw_number()
    stream = b"".join(frames.message(kind, number, body) for kind, body in sent)
    for size in (1, 2, 5, 64, len(stream)):
        reader = frames.Reader(number)
        got = [m for i in range(0, len(stream), size) for m in reader.feed(stream[i : i + size])]
        assert got == sent
    with pytest.raises(wire.WireError):
        frames.Reader(number).feed(b"X" + number + b"\0\0\0\0")
    with pytest.raises(wire.WireError):
        frames.Reader(frames.draw_number()).feed(stream)
