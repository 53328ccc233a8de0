"""The solver's zygote: has torch and the probes loaded, runs no hand-in code, forks per probe.

The judge sends, over the control socket, three descriptors per probe: a data socket, and where
the child's output goes. The request itself travels over the data socket and is read by the child
alone, so that this process never sees an argument of a hidden test. The judge kills whatever a
probe leaves behind; this process only forks, reaps, and empties the private folder. A child puts
up its shield before it reads the request, and the judge learns of a child only after that.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import importlib
import os
import pkgutil
import resource
import signal
import socket
import sys
import time

from . import frames
from .shield import Shield, emptied, first_to_go

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SHIELDED = b"+"


def main(control_fd: int, shield: str) -> None:
    """Serves until the judge closes the control socket.

    shield: what each child puts up, encoded.
    """
    shield = Shield.decoded(shield)
    first_to_go()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans stay below us, where they are found
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # else a child can write /proc/PID/mem of this process
    control = socket.socket(fileno=control_fd)
    _preload()
    control.send(b"ready")
    pid = 0
    while True:
        message, fds, _, _ = socket.recv_fds(control, 16, 3)
        if not message:
            os._exit(0)
        if message == b"status":
            control.send(str(_exit_status(pid)).encode())
            continue
        if message == b"alone":
            control.send(b"yes" if _reap() else b"no")
            continue
        _reap()
        pid, answer = 0, b"litter"
        if emptied(shield.temp):
            pid, answer = _fork(control, fds, shield)
        for fd in fds:
            os.close(fd)
        control.send(answer)


def _fork(control: socket.socket, fds: list[int], shield: Shield) -> tuple[int, bytes]:
    """A child that has put up its shield; its pid and what to tell the judge."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        control.close()
        _child(*fds, tell, shield)
    os.close(tell)
    with open(told, "rb") as pipe:
        said = pipe.read()
    return pid, b"forked" if said == SHIELDED else b"unshielded: " + said[:200]


def _preload() -> None:
    """Everything that a probe may need, so that a fork has it already."""
    import torch
    import torch.utils.checkpoint

    torch.set_num_threads(1)  # a pool of threads does not survive a fork; and one is enough
    from .. import probes

    importlib.import_module("..suite.observe", __package__)
    importlib.import_module("..gpu.virtual", __package__)
    for module in pkgutil.iter_modules(probes.__path__):
        importlib.import_module(f"{probes.__name__}.{module.name}")


def _reap() -> bool:
    """Whether nothing is left below this process, once what has ended is reaped.

    The kernel's own word: orphans come to us, so whoever has no child has no descendant.
    """
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _exit_status(pid: int) -> int | str:
    """How the last child ended, as subprocess counts (-11: by signal 11); "?" if it has not yet."""
    for _ in range(100):
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return "?"
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return "?"


def _child(data_fd: int, out_fd: int, err_fd: int, tell_fd: int, shield: Shield) -> None:
    """Answers its requests and ends; nothing of it returns to the zygote."""
    code = 1
    try:
        os.setsid()
        # Where no namespace ends with the zygote, a child that kills it must not outlive it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out_fd, 1), (err_fd, 2)):
            os.dup2(source, target)
        keep, tell = 3, 4
        # Out of the way first: one of them may be where another has to go.
        data_fd, tell_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (data_fd, tell_fd))
        os.dup2(data_fd, keep)
        os.dup2(tell_fd, tell)
        os.closerange(tell + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        faulthandler.enable(2)  # says at which line a fault of memory happened
        faulthandler.register(signal.SIGUSR1, 2)  # the judge asks so where an endless loop is
        _put_up(shield, tell)
        _answer(socket.socket(fileno=keep))
        code = 0
    finally:
        os._exit(code)


def _put_up(shield: Shield, tell_fd: int) -> None:
    try:
        shield.put_up()
    except (OSError, ValueError) as error:
        os.write(tell_fd, str(error).encode())
        raise
    os.write(tell_fd, SHIELDED)
    os.close(tell_fd)


def _answer(data: socket.socket) -> None:
    """Answers requests until the judge closes the socket: one, but for a group on a real GPU."""
    from ..suite import wire
    from ..suite.observe import Request, observe

    while True:
        try:
            number, body = frames.receive(data)
        except EOFError:
            return
        reply = observe(
            Request.decoded(body),
            lambda files, number=number: frames.send(
                data, frames.IMPORTING, number, wire.encode(files)
            ),
        )
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the hand-in's code may have closed it
                stream.flush()
        frames.send(data, frames.REPLY, number, reply)
