"""Which files the solver may see, which it must not, and who can reach them."""

from __future__ import annotations

import glob
import os
import stat
import sys
from pathlib import Path

from ...suite.places import GRADER, ROOT

SECRET = (  # the hidden suite, its term's secret, solutions, truth, and all of these over time
    ROOT / "staff",
    GRADER / "hidden",
    GRADER / "proof",
    ROOT / ".git",
)
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
# What the C library and torch ask of the machine. Not all of /proc: it holds the command lines
# of everybody's processes, where there is no namespace of our own.
MACHINE = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
GPU_FOLDERS = ("/sys", "/etc/nvidia", "/usr/local/nvidia", "/run/nvidia-persistenced")
GPU_MACHINE = ("/proc/driver", "/proc/devices", "/proc/modules", "/proc/version", "/proc/sys/vm")


def python_folders() -> list[str]:
    """Folders outside the system's that the interpreter and its packages live in."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    folders |= {p for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    own = sorted(f for f in folders if not f.startswith(("/usr/", "/lib")) and f != "/usr")
    return [f for f in own if Path(f).is_dir()]


def gpu_devices() -> list[str]:
    return sorted(glob.glob("/dev/nvidia*"))


def readable(staged: Path, gpu: bool) -> list[str]:
    """Every file and folder that a probe may read."""
    own = [*SYSTEM, *LOADER, *MACHINE, *python_folders(), str(staged)]
    return [*own, *GPU_FOLDERS, *GPU_MACHINE] if gpu else own


def exposing() -> str:
    """Why nothing can hide the staff's files from the solver here, in a sentence; or nothing."""
    for folder in ("/usr", *python_folders()):
        for secret in SECRET:
            if Path(folder).resolve() in (secret, *secret.parents):
                return (
                    f"the solver has to read {folder}, and {secret} lies below it: move the "
                    "repository, or make the Python environment in a folder of its own"
                )
    return ""


def closed_to_others(paths: list[Path]) -> str:
    """Why another user cannot come to `paths`, in a sentence; or nothing."""
    for path in paths:
        for folder in (*_links(path), path.resolve()):
            for above in reversed(folder.parents):
                if above.exists() and not above.stat().st_mode & stat.S_IXOTH:
                    return (
                        f"{above} is closed to other users, and {path} lies below it: put it where "
                        f"everybody may read it (a Python under /usr or /opt), or chmod o+x {above}"
                    )
    return ""


def _links(path: Path) -> list[Path]:
    """`path` and, while it is a symbolic link, what it leads to: each has folders to pass."""
    chain = [path]
    while chain[-1].is_symlink() and len(chain) < 20:
        chain.append(chain[-1].parent / os.readlink(chain[-1]))
    return chain
