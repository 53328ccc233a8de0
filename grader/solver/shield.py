"""What a probe's process gives up before anything of the hand-in runs in it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import stat
from dataclasses import asdict, dataclass, field

from . import landlock, seccomp


@dataclass
class Shield:
    """Made by the judge, put up by each process that runs a hand-in's code, by itself.

    It holds on every rung, inside bubblewrap too, where it keeps the probe from its zygote.
    """

    readable: list[str] = field(default_factory=list)
    temp: str = ""  # the one folder that can be written
    devices: list[str] = field(default_factory=list)
    landlock: bool = False
    seccomp: bool = False
    memory_files: bool = False  # memfd_create stays allowed
    cpu_s: int = 0  # 0: not limited from inside
    tasks: int = 0  # processes and threads of the account; 0 where others share it
    open_files: int = 0
    file_bytes: int = 0

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Shield:
        return cls(**json.loads(text))

    def put_up(self) -> None:
        """Raises OSError when something of it is refused; the caller then runs nothing."""
        caps = {
            resource.RLIMIT_CORE: (0, 0),
            resource.RLIMIT_NPROC: self.tasks and (self.tasks, self.tasks),
            resource.RLIMIT_NOFILE: self.open_files and (self.open_files, self.open_files),
            resource.RLIMIT_FSIZE: self.file_bytes and (self.file_bytes, self.file_bytes),
            # The signal at the first number names the cause; the second one cannot be caught.
            resource.RLIMIT_CPU: self.cpu_s and (self.cpu_s, self.cpu_s + 1),
        }
        for kind, cap in caps.items():
            if cap:
                resource.setrlimit(kind, cap)
        if self.landlock:
            landlock.restrict(self.readable, [self.temp], self.devices)
        if self.seccomp:
            seccomp.restrict(self.memory_files)


def first_to_go() -> None:
    """Has the kernel take this process, and not the judge, when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def emptied(folder: str) -> bool:
    """Empties `folder` of what a probe has left in it; False when that cannot be done."""

    def open_up(_function, path, _error):
        for closed in (os.path.dirname(path), path):
            if not os.path.islink(closed):
                with contextlib.suppress(OSError):
                    os.chmod(closed, stat.S_IRWXU)

    try:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, onerror=open_up)
                shutil.rmtree(entry.path, ignore_errors=True)  # now that it is open
            else:
                os.unlink(entry.path)
        return not os.listdir(folder)
    except (OSError, RecursionError):
        return False
