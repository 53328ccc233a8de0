"""How far the solver is shut in: the strongest rung of the ladder that this machine allows.

A rung turns the command that starts the zygote into one that starts it shut in. The staged folder
is the only part of the grader or the hand-in that the solver sees.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65534
PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OLMOE_WEIGHTS")  # of our environment


@dataclass(frozen=True)
class Rung:
    """One way of shutting the solver in."""

    name: str
    says: str  # for the report
    wrap: Callable[[list[str], Path, bool], list[str]]  # command, staged folder, with a GPU
    hides_staff_files: bool


def environment() -> dict[str, str]:
    """The solver's whole environment."""
    own = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "LOGNAME": "solver",  # torch asks who we are, and no /etc/passwd says it
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return own | {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def _python_folders() -> list[str]:
    """Folders that the interpreter and its packages live in."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    folders |= {p for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    outside = sorted(f for f in folders if not f.startswith(("/usr/", "/lib")) and f != "/usr")
    return [f for f in outside if Path(f).is_dir()]


def _bubblewrap(command: list[str], staged: Path, gpu: bool) -> list[str]:
    # The user namespace maps us to nobody without any capability: with one, or as root, or
    # while dumpable, the zygote could be written by its children through /proc.
    wrapped = [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY)),
        *("--cap-drop", "ALL", "--die-with-parent", "--new-session"),
        *("--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    ]
    for top in ("/bin", "/sbin", "/lib", "/lib64", "/lib32"):
        if os.path.islink(top):
            wrapped += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            wrapped += ["--ro-bind", top, top]
    for file in ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"):
        wrapped += ["--ro-bind-try", file, file]
    for folder in _python_folders():
        wrapped += ["--ro-bind", folder, folder]
    if gpu:
        for device in sorted(glob.glob("/dev/nvidia*")):
            wrapped += ["--dev-bind", device, device]
        for folder in ("/sys", "/etc/nvidia", "/usr/local/nvidia", "/run/nvidia-persistenced"):
            wrapped += ["--ro-bind-try", folder, folder]
    # Last, so that no folder above can cover it.
    return [*wrapped, "--ro-bind", str(staged), str(staged), "--chdir", "/tmp", *command]


def _own_user(command: list[str], staged: Path, gpu: bool) -> list[str]:
    setpriv = [
        shutil.which("setpriv") or "setpriv",
        *("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"),
        *("--no-new-privs", "--bounding-set", "-all", "--inh-caps", "-all"),
    ]
    return [*setpriv, *command]


BUBBLEWRAP = Rung(
    "bubblewrap",
    "bubblewrap: namespaces of its own, a read-only system, no network, no staff files",
    _bubblewrap,
    hides_staff_files=True,
)
OWN_USER = Rung(
    "own-user",
    "a user of its own without privileges; files that everybody may read are readable",
    _own_user,
    hides_staff_files=False,
)
NONE = Rung(
    "none",
    "a process of its own, and nothing else, between the hand-in and this account",
    lambda command, staged, gpu: command,
    hides_staff_files=False,
)
LADDER = (BUBBLEWRAP, OWN_USER, NONE)


def works(rung: Rung, staged: Path) -> bool:
    """Whether this machine lets a process be started on `rung`, with the solver's Python."""
    probe = [sys.executable, "-P", "-S", "-c", f"import os; os.listdir({str(staged)!r})"]
    try:
        done = subprocess.run(
            rung.wrap(probe, staged, False),
            env=environment(),
            cwd="/",
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def strongest(staged: Path, at_most: str = "") -> Rung:
    """The first rung that works, beginning with `at_most` (a rung's name) if it is given."""
    names = [rung.name for rung in LADDER]
    start = names.index(at_most) if at_most else 0
    for rung in LADDER[start:]:
        if works(rung, staged):
            return rung
    raise RuntimeError("no way of starting the solver works here, not even a plain process")
