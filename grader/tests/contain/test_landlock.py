"""Landlock on every ABI up to this kernel's, and seccomp alone: what each covers, and no more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ...judge.contain.folders import SYSTEM, python_folders
from ...solver import landlock, seccomp
from ...suite.places import ROOT

_RESTRICTED = """
import json, os, signal, socket, sys
sys.path.insert(0, sys.argv[1])
from grader.solver import landlock
abi, inside, outside, readable, port = json.loads(sys.argv[2])
parent = os.getppid()
landlock.abi = lambda: abi
landlock.restrict(readable, [inside], ["/dev/null"])
def refused(action, *args):
    try:
        action(*args)
    except OSError:
        return True
    return False
print(json.dumps({
    "read": refused(open, f"{outside}/file"),
    "list": refused(os.listdir, outside),
    "write": refused(open, f"{outside}/new", "w"),
    "truncate": refused(os.truncate, f"{outside}/file", 3),
    "tcp": refused(socket.create_connection, ("127.0.0.1", port)),
    "signal": refused(os.kill, parent, signal.SIGCONT),
    "inside": refused(open, f"{inside}/new", "w"),
    "null": refused(open, "/dev/null", "w"),
    "execute": refused(os.execv, f"{inside}/new", ["new"]),
}))
"""
SINCE = {"read": 1, "list": 1, "write": 1, "truncate": 3, "tcp": 4, "signal": 6}


@pytest.mark.parametrize("abi", range(1, 8))
def test_each_abi_covers_what_it_says(tmp_path, abi):
    if landlock.abi() < abi:
        pytest.skip(f"this kernel's Landlock is of ABI {landlock.abi()}")
    import socket

    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "file").write_text("abc")
    readable = [*SYSTEM, *python_folders(), str(ROOT / "grader" / "solver"), str(tmp_path / "no")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = json.dumps([abi, str(inside), str(outside), readable, port])
        done = subprocess.run(
            [sys.executable, "-S", "-c", _RESTRICTED, str(ROOT), told],
            capture_output=True,
            text=True,
            check=False,
        )
    assert not done.returncode, done.stderr
    seen = json.loads(done.stdout)
    assert not seen.pop("inside") and not seen.pop("null") and seen.pop("execute")
    assert seen == {what: abi >= since for what, since in SINCE.items()}


def test_a_filter_is_offered_where_one_can_be_put_up():
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from grader.solver import seccomp; seccomp.restrict()"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert seccomp.available() is (done.returncode == 0)


@pytest.mark.parametrize("memory_files", [False, True])
def test_every_jump_of_the_filter_lands_in_it(memory_files):
    import struct

    code = list(struct.iter_unpack("=HBBI", seccomp._program(memory_files)))
    for at, (operation, if_so, if_not, _) in enumerate(code):
        if operation & 7 == 5:  # a jump
            assert at + 1 + max(if_so, if_not) < len(code)
    assert code[-1][0] == 6 and code[-1][3] == 0x7FFF0000  # ends with a return: allow
