"""The judge's side of the solver: starts it, asks it, bounds it, and ends whatever it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shared.assignment import Limits

from ..solver import frames
from ..suite import advice, wire
from ..suite.backend import (
    DUMP_S,
    ENDED,
    TOOK_LONGER,
    BackendFault,
    Problem,
    Reply,
    ended_with,
    find_broken_files,
    paths_in,
    reply_of,
)
from ..suite.observe import Request
from .contain import Cell, Rung
from .watch import TOO_MUCH, WATCH_S, Watch, out_of_service

IMPORTS = "imports.every_file"
HUNG_SHARE = 0.1  # of a test's time, once one test of the exercise has exceeded it
START_S = 120  # importing torch on a cold and busy disk
SWEEP_S = 10  # killing a process that holds gigabytes takes the kernel a while


class SolverFault(BackendFault):
    """The solver could not be started: a fault of the grader or the machine, not the hand-in."""


@dataclass
class Solver:
    """Runs probes beside a hand-in in processes that are shut in. A context manager.

    staged: the folder made by `stage.lay_out`. `use` says which hand-in is meant.
    """

    staged: Path
    tier: str
    rung: Rung
    limits: Limits
    handin: Path = Path()  # the five files, below `staged`
    results: Path = Path()  # the handed-in artifacts; the solver does not see them
    broken: dict[str, Problem] = field(default_factory=dict)
    warned: list[str] = field(default_factory=list)
    hung: set[str] = field(default_factory=set)  # exercises in which a probe ran out of time
    _child: _Child | None = None

    def __enter__(self) -> Solver:
        self._start()
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def use(self, handin: Path, results: Path) -> None:
        """From now on, probes run beside the hand-in in these folders."""
        self._end_child()
        self.handin, self.results, self.broken = handin, results, {}
        self.warned, self.hung = [], set()
        find_broken_files(
            self,
            lambda: self._observe(IMPORTS, {}, "", self.limits.import_s),
            [handin],
        )

    @property
    def died(self) -> bool:
        """Whether the process that was started first has ended: a hand-in has killed it."""
        return self._process.poll() is not None

    def observe(self, probe: str, args: dict, group: str = "") -> Reply:
        """Runs one probe and returns what became of it.

        In a fresh process; on a real GPU, where starting one takes seconds, in the process of
        the `group` if the probe before was of the same group and came to an answer. An exercise
        has the whole time limit until it has exceeded it once, and then a share of it, so that
        one endless loop does not use up the time of all other exercises.
        """
        exercise = group.rpartition("/")[2]
        share = HUNG_SHARE if exercise in self.hung else 1
        reply = self._observe(probe, args, group, self.limits.test_s * share)
        if reply.hung:
            self.hung.add(exercise)
        return reply

    def _observe(self, probe: str, args: dict, group: str, limit_s: float) -> Reply:
        folders = [str(self.handin)]
        # Importing needs no real GPU, whose start takes seconds: that is not the hand-in's time.
        tier = "virtual" if probe == IMPORTS else self.tier
        request = Request(probe, args, tier, folders, list(self.broken)).encoded()
        if self._child and self._child.group != group:
            self._end_child()
        if not self._child:
            self._child = self._fork_child(group)
        child = self._child
        watch = Watch(
            self._zygote, self._cell, limit_s, lambda: sum(o.read_bytes for o in child.output)
        )
        reply = _converse(child, request, watch)
        if reply.ended == ENDED:
            reply = dataclasses.replace(reply, ended=ended_with(self._how_it_ended()))
        out, err = self._child.output
        if reply.ended.startswith((TOOK_LONGER, *TOO_MUCH)):  # it is still there
            self._have_it_say_where(err)
        if reply.ended or not (group and self.tier == "cuda"):
            self._end_child()
        printed, said = out.take(), err.take()
        where = advice.place(said, paths_in([self.handin])) if reply.ended else ""
        return dataclasses.replace(reply, where=where, printed=f"{printed}\n{said}".strip())

    def _have_it_say_where(self, err: _Output) -> None:
        """Has the probe's process write where it is, before it is killed."""
        with contextlib.suppress(psutil.Error):
            for process in self._zygote.children():
                process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + DUMP_S
        size = start = err.read_bytes
        while time.monotonic() < end and (size == start or size < err.read_bytes):
            size = err.read_bytes
            time.sleep(0.02)
            err.drain()

    def _fork_child(self, group: str) -> _Child:
        ours, theirs = socket.socketpair()
        output = (_Output(self.limits.printed_bytes), _Output(self.limits.printed_bytes))
        with theirs:
            self._fork([theirs.fileno(), *(o.write_fd for o in output)])
        for o in output:
            o.close_write()
        return _Child(ours, output, group)

    def _end_child(self) -> None:
        """Ends the probe's process, and whatever it has started."""
        child, self._child = self._child, None
        if child:
            child.sock.close()
            try:
                self._sweep()
            finally:
                for output in child.output:
                    output.drain()
                    output.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        released = str(self.staged / "released")
        self._cell = Cell(self.rung, self.staged, self.limits, self.tier == "cuda")
        start = (
            f"import sys; sys.path.insert(0, {released!r}); "
            f"from grade.solver.zygote import main; "
            f"main({theirs.fileno()}, {self._cell.shield().encoded()!r})"
        )
        command = self._cell.command([sys.executable, "-P", "-s", "-c", start])
        self._process = subprocess.Popen(
            command,
            env=self._cell.environment(),
            cwd="/",
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self._control = ours
        ours.settimeout(START_S)
        try:
            ready = ours.recv(16)
        except TimeoutError:
            ready = b""
        if ready != b"ready":
            self._process.kill()
            said = self._process.communicate()[1].decode(errors="replace")[-4000:]
            self._cell.close()
            raise SolverFault(f"the solver did not start ({self.rung.name}):\n{said}")
        self._process.stderr.close()
        self._zygote = _innermost(self._process.pid)

    def _stop(self) -> None:
        self._end_child()
        self._control.close()
        with contextlib.suppress(psutil.Error):
            self._sweep()
        if out_of_service(self._zygote):  # it would not hear that the socket is closed
            self._process.kill()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._cell.close()

    def _fork(self, fds: list[int]) -> None:
        """Has the zygote fork a child on `fds`.

        A zygote that does not answer, was stopped, or cannot clear away what the last probe wrote
        is replaced.
        """
        for attempt in (1, 2):
            answer = b""
            with contextlib.suppress(OSError, TimeoutError):
                if not out_of_service(self._zygote):
                    socket.send_fds(self._control, [b"fork"], fds)
                    answer = self._control.recv(400)
            if answer == b"forked":
                return
            if answer.startswith(b"unshielded"):
                raise SolverFault(f"a probe's process was not shut in: {answer.decode()}")
            if attempt == 1:
                self._stop()
                self._start()
        raise SolverFault("the solver's zygote does not fork")

    def _how_it_ended(self) -> int | None:
        if out_of_service(self._zygote):
            return None
        try:
            self._control.send(b"status")
            return int(self._control.recv(16))
        except (OSError, ValueError):  # the zygote is gone, or the child is not
            return None

    def _zygote_is_alone(self) -> bool:
        if out_of_service(self._zygote):
            return True  # it will be replaced, and takes its namespace or its cell along
        try:
            self._control.send(b"alone")
            return self._control.recv(16) == b"yes"
        except OSError:
            return True

    def _sweep(self) -> None:
        """Kills everything below the zygote: stopped first, so that nothing escapes by forking."""
        end = time.monotonic() + SWEEP_S
        while time.monotonic() < end:
            try:
                left = self._zygote.children(recursive=True)
            except psutil.NoSuchProcess:
                return
            left = [p for p in left if _status(p) != psutil.STATUS_ZOMBIE]
            # A list is no proof: a process that forks and exits all the time slips through it.
            if not left and self._zygote_is_alone():
                return
            for send in ("suspend", "kill"):
                for process in left:
                    with contextlib.suppress(psutil.Error):
                        getattr(process, send)()
            time.sleep(0.002)
        raise SolverFault("processes of a hand-in cannot be killed")


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.Error:
        return psutil.STATUS_ZOMBIE


def _innermost(pid: int) -> psutil.Process:
    """The zygote itself below whatever wrapped it: the last of a chain of only children."""
    process = psutil.Process(pid)
    while children := process.children():
        process = children[0]
    return process


@dataclass
class _Child:
    """The process that a probe runs in, as the judge holds it."""

    sock: socket.socket
    output: tuple[_Output, _Output]  # its stdout and stderr
    group: str


class _Output:
    """The end of what a probe's process prints; never waited for."""

    def __init__(self, keep_bytes: int):
        self._keep_bytes = keep_bytes
        self.read_bytes = 0
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        with contextlib.suppress(OSError):  # fewer turns for a flood
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._kept = bytearray()
        self.ended = False  # everybody who could write has closed it
        self._writing = True

    def close(self) -> None:
        self.close_write()
        os.close(self.read_fd)

    def close_write(self) -> None:
        if self._writing:
            os.close(self.write_fd)
            self._writing = False

    def drain(self) -> None:
        """Reads what there is, a bounded number of times: a flood must not hold the judge."""
        for _ in range(8):
            try:
                data = os.read(self.read_fd, 1 << 20)
            except BlockingIOError:
                return
            if not data:
                self.ended = True
                return
            self.read_bytes += len(data)
            self._kept += data
            if len(self._kept) > 2 * self._keep_bytes:  # not each time: it moves what is kept
                del self._kept[: -self._keep_bytes]

    def take(self) -> str:
        """What was printed since the last time."""
        text = self._kept[-self._keep_bytes :].decode(errors="replace")
        self._kept.clear()
        return text


def _converse(child: _Child, request: bytes, watch: Watch) -> Reply:
    """Sends the request, and reads until the reply, the end of the process, or a cap."""
    sock, outputs = child.sock, child.output
    sock.setblocking(False)
    number = frames.draw_number()
    to_send = memoryview(frames.message(frames.REQUEST, number, request))
    reader = frames.Reader(number)
    executing: tuple[str, ...] = ()
    while True:
        readers = [sock, *(o.read_fd for o in outputs if not o.ended)]
        ready, writable, _ = select.select(readers, [sock] if to_send else [], [], WATCH_S)
        for output in outputs:
            output.drain()
        if exceeded := watch.exceeded():
            return Reply(ended=exceeded, executing=executing)
        try:
            if writable and to_send:
                to_send = to_send[sock.send(to_send) :]
            if sock not in ready:
                continue
            data = sock.recv(1 << 20)
            if not data:
                return Reply(ended=ENDED, executing=executing)
            for kind, body in reader.feed(data):
                if kind == frames.REPLY:
                    return reply_of(body)
                executing = tuple(str(f)[:200] for f in _files(body))
        except BlockingIOError:
            continue
        except ConnectionError:
            return Reply(ended=ENDED, executing=executing)
        except wire.WireError as error:
            return Reply(ended=f"answered with something unreadable ({error})")


def _files(body: bytes) -> list:
    told = wire.decode(body)
    return told if type(told) is list else []
