"""The ladder: what can be put around a solver, strongest first, and which of it works here."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.assignment import assignment

from ...solver import landlock, seccomp
from ...suite.places import GRADER
from . import folders
from .cell import NOBODY, Cell

TRIAL_S = 30
# As someone who owns files of ours: below ABI 3 it could still truncate what it may read.
LEAST_ABI_ALONE = 3
ABI_TCP, ABI_SIGNALS = 4, 6


@dataclass(frozen=True)
class Rung:
    """One way of shutting the solver in."""

    name: str
    says: str  # for the report; follows "behind"
    around: Callable[[Cell], list[str]]  # what comes before the command
    lacks: Callable[[Path], str]  # why it cannot be had here, for this staged folder; or nothing
    hides_staff_files: bool  # of own-user: as the trial found them
    namespaces: bool = False  # mount, pid, ipc and network of its own
    own_uid: bool = False
    landlock: bool = True  # a list of files, where the kernel offers it
    why_not_hidden: str = ""  # why staff files can be read, in a sentence


@dataclass(frozen=True)
class Found:
    """What became of trying one rung."""

    rung: Rung
    why_not: str = ""  # a sentence; empty when it works

    @property
    def works(self) -> bool:
        return not self.why_not


def _bubblewrap(cell: Cell) -> list[str]:
    # The user namespace maps us to nobody without any capability: with one, or as root, or
    # while dumpable, the zygote could be written by its children through /proc.
    wrapped = [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY)),
        *("--cap-drop", "ALL", "--die-with-parent", "--new-session"),
        *("--proc", "/proc", "--dev", "/dev"),
    ]
    # Twice the cap: what is above it is seen by the watch, which says so, before it is full.
    size_bytes = cell.limits.written_mib << 21
    sized = ["--size", str(size_bytes)] if "--size" in _help_of_bubblewrap() else []
    wrapped += [*sized, "--tmpfs", cell.temp, "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr"]
    for top in folders.SYSTEM[1:]:
        if os.path.islink(top):
            wrapped += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            wrapped += ["--ro-bind", top, top]
    for file in folders.LOADER:
        wrapped += ["--ro-bind-try", file, file]
    for folder in folders.python_folders():
        wrapped += ["--ro-bind", folder, folder]
    if cell.gpu:
        for device in folders.gpu_devices():
            wrapped += ["--dev-bind", device, device]
        for folder in folders.GPU_FOLDERS:
            wrapped += ["--ro-bind-try", folder, folder]
    staged = str(cell.staged)
    # Last, so that no folder above can cover it; then nothing but the private folder can be
    # written, not even the file systems that bubblewrap itself lays out.
    wrapped += ["--ro-bind", staged, staged]
    for top in ("/tmp", "/dev", "/"):
        wrapped += ["--remount-ro", top]
    return [*wrapped, "--chdir", cell.temp, "--"]


def _help_of_bubblewrap() -> str:
    done = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _lacks_bubblewrap(_staged: Path) -> str:
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)"
    return folders.exposing()


def _without_privileges(cell: Cell) -> list[str]:
    setpriv = shutil.which("setpriv")
    if not setpriv:
        return []
    user = ["--reuid", str(cell.uid), "--regid", str(cell.uid), "--clear-groups"]
    bounds = ["--bounding-set", "-all"] if os.geteuid() == 0 else []
    own_uid = user if cell.rung.own_uid else []
    return [setpriv, *own_uid, "--no-new-privs", "--inh-caps", "-all", *bounds, "--"]


def _lacks_own_user(staged: Path) -> str:
    if os.geteuid() != 0:
        return "only root can give the solver an account of its own, and this is not root"
    if not shutil.which("setpriv"):
        return "setpriv is not installed (Debian and Ubuntu: apt-get install util-linux)"
    needed = [Path(sys.executable), Path(sys.prefix), Path(sys.base_prefix), staged]
    return folders.closed_to_others(needed)


def _lacks_own_user_and_landlock(staged: Path) -> str:
    if not landlock.abi():
        return "this kernel, or this container, offers no Landlock"
    return _lacks_own_user(staged) or folders.exposing()


def _lacks_landlock(_staged: Path) -> str:
    offered = landlock.abi()
    if not offered:
        return "this kernel, or this container, offers no Landlock"
    if offered < LEAST_ABI_ALONE:
        return f"this kernel's Landlock (ABI {offered}) does not cover truncation; ABI 3 does"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        return "this is root, and setpriv, which takes root's privileges away, is not installed"
    if not seccomp.available():
        return (
            "without seccomp the hand-in could set limits on the judge, and change modes of files"
        )
    return folders.exposing()


BUBBLEWRAP = Rung(
    "bubblewrap",
    "bubblewrap: namespaces of its own, a read-only system, no network, no staff files",
    _bubblewrap,
    _lacks_bubblewrap,
    hides_staff_files=True,
    namespaces=True,
)
OWN_USER_LANDLOCK = Rung(
    "own-user-landlock",
    "a user of its own without privileges, and Landlock: a short list of files, no staff files",
    _without_privileges,
    _lacks_own_user_and_landlock,
    hides_staff_files=True,
    own_uid=True,
)
OWN_USER = Rung(
    "own-user",
    "a user of its own without privileges; files that everybody may read are readable",
    _without_privileges,
    _lacks_own_user,
    hides_staff_files=False,
    own_uid=True,
    landlock=False,
)
LANDLOCK = Rung(
    "landlock",
    "Landlock under the grader's own account: a short list of files, no staff files",
    _without_privileges,
    _lacks_landlock,
    hides_staff_files=True,
)
NONE = Rung(
    "none",
    "a process of its own, and nothing else, between the hand-in and this account",
    _without_privileges,
    lambda _staged: "",
    hides_staff_files=False,
    landlock=False,
    why_not_hidden="the solver runs under the grader's own account",
)
LADDER = (BUBBLEWRAP, OWN_USER_LANDLOCK, OWN_USER, LANDLOCK, NONE)

# Puts up the shield as a probe does, and says which of the files that it must not see it sees.
_TRIAL = """
import json, os, sys
staged, shield, secret = json.loads(sys.argv[1])
sys.path.insert(0, staged + "/released")
from grade.solver.shield import Shield
Shield.decoded(shield).put_up()
os.listdir(staged)
def seen(path):
    try:
        os.listdir(path)
        return True
    except NotADirectoryError:
        return os.access(path, os.R_OK)
    except OSError:
        return False
print(json.dumps([path for path in secret if seen(path)]))
"""


def attempt(rung: Rung, staged: Path, secret: tuple[Path, ...] = folders.SECRET) -> Found:
    """Starts the solver's Python on `rung`, with its shield, and looks for the staff's files."""
    if why_not := rung.lacks(staged):
        return Found(rung, why_not)
    cell = None
    try:
        cell = Cell(rung, staged, assignment().limits)
        told = json.dumps([str(staged), cell.shield().encoded(), [str(s) for s in secret]])
        done = subprocess.run(
            cell.command([sys.executable, "-P", "-S", "-c", _TRIAL, told]),
            env=cell.environment(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Found(rung, f"it does not start: {error}")
    finally:
        if cell:
            cell.close()
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        hint = "; containers often forbid namespaces" if rung.namespaces else ""
        return Found(rung, f"it does not start: {last}{hint}")
    seen = json.loads(done.stdout)
    if seen and rung.hides_staff_files:
        return Found(rung, f"it was to hide these, and does not: {', '.join(seen)}")
    if not rung.own_uid or rung.hides_staff_files:
        return Found(rung)
    why = f"it can read {', '.join(seen)}: chmod -R o-rwx them" if seen else ""
    return Found(dataclasses.replace(rung, hides_staff_files=not seen, why_not_hidden=why))


def survey() -> list[Found]:
    """Tries every rung of the ladder on this machine; needs no hand-in."""
    with tempfile.TemporaryDirectory(prefix="survey-") as folder:
        os.chmod(folder, 0o711)
        staged = Path(folder) / "staged"
        lay_out_solver(staged)
        return [attempt(rung, staged) for rung in LADDER]


def lay_out_solver(staged: Path) -> None:
    """The part of the solver that needs no torch, where `stage.lay_out` puts it."""
    package = staged / "released" / "grade"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copytree(
        GRADER / "solver", package / "solver", ignore=shutil.ignore_patterns("__pycache__")
    )


def strongest(staged: Path, at_most: str = "") -> Rung:
    """The first rung that works, beginning with `at_most` (a rung's name) if it is given.

    Raises ValueError for a name that is no rung, RuntimeError when none works.
    """
    names = [rung.name for rung in LADDER]
    if at_most and at_most not in names:
        raise ValueError(f"--containment {at_most}: no such rung; there are {', '.join(names)}")
    tried = []
    for rung in LADDER[names.index(at_most) if at_most else 0 :]:
        found = attempt(rung, staged)
        if found.works:
            return found.rung
        tried.append(f"{rung.name}: {found.why_not}")
    raise RuntimeError("no way of starting the solver works here:\n" + "\n".join(tried))


def means() -> list[str]:
    """What the kernel offers to every rung, in sentences."""
    offered = landlock.abi()
    parts = [f"Landlock ABI {offered}"] if offered else ["no Landlock"]
    if offered:
        parts += [f"{'' if offered >= ABI_TCP else 'not '}covering TCP"]
        parts += [f"{'' if offered >= ABI_SIGNALS else 'not '}covering signals"]
    filters = "seccomp" if seccomp.available() else "no seccomp"
    return [", ".join(parts), filters]
