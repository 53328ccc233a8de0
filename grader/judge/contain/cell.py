"""One solver's cell: its account, its private folder, its command; and what is left when it ends.

A cell is on a rung (`ladder`); the rung says what is put around the command, the cell does it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shared.assignment import Limits

from ...solver import landlock, seccomp
from ...solver.shield import Shield
from . import folders

if TYPE_CHECKING:
    from .ladder import Rung

NOBODY = 65534
OWN_UIDS = range(61184, 65520)  # systemd's range for accounts that exist while something runs
PASSED_ON = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OLMOE_WEIGHTS")  # of our environment
WORLD_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")
TASKS_PER_PROCESS = 4  # an honest probe on a GPU has a few dozen threads and one process
INSIDE = "/private"  # where namespaces give the private folder a file system of its own
BACKSTOP_S = 2
END_S = 5


@dataclass
class Cell:
    """Made before a solver starts; `close` when it has ended.

    staged: the folder that is all of the grader and the hand-in that the solver sees. The private
    folder is made beside it, so that whoever removes that also removes what a killed judge left.
    """

    rung: Rung
    staged: Path
    limits: Limits
    gpu: bool = False
    uid: int = field(init=False)  # as the solver sees it
    folder: Path | None = field(init=False, default=None)  # the private one, unless it is inside

    def __post_init__(self):
        self.uid = NOBODY if self.rung.namespaces else os.getuid()
        if self.rung.own_uid:
            self.uid = free_uid()
        if not self.private_tmpfs:
            self.folder = Path(tempfile.mkdtemp(prefix="solver-", dir=self.staged.parent))
            if self.rung.own_uid:
                os.chown(self.folder, self.uid, self.uid)

    @property
    def private_tmpfs(self) -> bool:
        return self.rung.namespaces

    @property
    def temp(self) -> str:
        """The private folder, as the solver sees it."""
        return str(self.folder or INSIDE)

    def command(self, command: list[str]) -> list[str]:
        """What starts `command` in the cell."""
        return [*self.rung.around(self), *command]

    def environment(self) -> dict[str, str]:
        """The solver's whole environment."""
        own = {
            "PATH": "/usr/bin:/bin",
            "HOME": self.temp,
            "TMPDIR": self.temp,
            "LOGNAME": "solver",  # torch asks who we are, and no /etc/passwd says it
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return own | {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def shield(self) -> Shield:
        """What each probe's process gives up by itself."""
        limits = self.limits
        return Shield(
            readable=folders.readable(self.staged, self.gpu),
            temp=self.temp,
            devices=[*folders.DEVICES, *(folders.gpu_devices() if self.gpu else ())],
            landlock=self.rung.landlock and landlock.abi() > 0,
            seccomp=seccomp.available(),
            memory_files=self.gpu,
            # In case the watch is late; it names the cap. Where one process answers for a whole
            # group of probes, the watch alone can count.
            cpu_s=0 if self.gpu else limits.cpu_s + BACKSTOP_S,
            tasks=limits.processes * TASKS_PER_PROCESS if self._counts_tasks() else 0,
            open_files=limits.open_files,
            file_bytes=limits.written_mib << 20,
        )

    def written(self, zygote_pid: int) -> tuple[int, int]:
        """Bytes and files in the private folder: (bytes, files). Stops counting above the caps."""
        if self.private_tmpfs:
            try:
                inside = os.statvfs(f"/proc/{zygote_pid}/root{INSIDE}")
            except OSError:  # the kernel keeps it from us; the folder's own size still holds
                return 0, 0
            used = (inside.f_blocks - inside.f_bfree) * inside.f_frsize
            return used, inside.f_files - inside.f_ffree
        total = files = 0
        waiting = [self.temp]
        while waiting and files <= self.limits.written_files:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files > self.limits.written_files:
                        break
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        return total, files

    def close(self) -> None:
        """Ends what still runs under an account of the cell's own; removes what it wrote."""
        if self.rung.own_uid:
            self._end_processes()
            for folder in WORLD_WRITABLE:
                _remove_files_of(self.uid, Path(folder))
            _remove_ipc_of(self.uid)
        if self.folder:
            shutil.rmtree(self.folder, onerror=_open_up)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _counts_tasks(self) -> bool:
        """Whether RLIMIT_NPROC counts this cell alone."""
        if self.rung.own_uid:
            return True
        # Since 5.14 it counts by user namespace.
        kernel = tuple(int(part) for part in platform.release().split(".")[:2] if part.isdigit())
        return self.rung.namespaces and kernel >= (5, 14)

    def _end_processes(self) -> None:
        end = time.monotonic() + END_S
        while (left := processes_of(self.uid)) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)


def processes_of(uid: int) -> list[int]:
    """Processes of this account that are not over."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/status") as status:
                fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
                if fields["State"][0] not in "ZX" and int(fields["Uid"].split()[0]) == uid:
                    found.append(int(name))
    return found


def free_uid() -> int:
    """An account that nobody has and under which nothing runs.

    Begins at a place of this process's own, so that two judges at once choose differently.
    """
    start = os.getpid() * 7 % len(OWN_UIDS)
    for i in range(len(OWN_UIDS)):
        uid = OWN_UIDS[(start + i) % len(OWN_UIDS)]
        if not processes_of(uid):
            return uid
    raise RuntimeError(f"every uid from {OWN_UIDS[0]} to {OWN_UIDS[-1]} is in use")


def _open_up(_function, path, _error) -> None:
    for closed in (os.path.dirname(path), path):
        if not os.path.islink(closed):
            with contextlib.suppress(OSError):
                os.chmod(closed, 0o700)


def _remove_files_of(uid: int, folder: Path) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == uid:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)


def _remove_ipc_of(uid: int) -> None:
    """System V memory, semaphores and queues, which outlive their maker."""
    libc = ctypes.CDLL(None)
    for kind, control in (
        ("shm", lambda n: libc.shmctl(n, 0, None)),
        ("sem", lambda n: libc.semctl(n, 0, 0)),
        ("msg", lambda n: libc.msgctl(n, 0, None)),
    ):
        with contextlib.suppress(OSError), open(f"/proc/sysvipc/{kind}") as table:
            names = next(table).split()
            for line in table:
                row = dict(zip(names, line.split(), strict=False))
                if int(row["uid"]) == uid:
                    control(int(row["shmid" if kind == "shm" else f"{kind[:3]}id"]))
