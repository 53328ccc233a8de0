"""Where probes run. `InProcess` is `make test`; the judge's solver is the other one."""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shared.assignment import assignment

from . import advice, wire
from .observe import Request, observe

ENDED = "ended the Python process"
TOOK_LONGER = "took longer than"
DUMP_S = 1.0  # how long a process may take to say where it is


class BackendFault(RuntimeError):
    """A probe could not be run at all: a fault of the grader or the machine, not the hand-in."""


@dataclass(frozen=True)
class Reply:
    """What became of one probe: exactly one of value, raised, ended."""

    value: object = None
    raised: dict | None = None  # see observe.described
    ended: str = ""  # the process did not answer: why, in words for the student
    executing: tuple[str, ...] = ()  # files being imported when it ended
    where: str = ""  # the hand-in's file and line at which it ended, where that is known
    left: tuple[str, ...] = ()  # what it left changed for the whole process, in words
    printed: str = ""  # what the hand-in's code printed

    @property
    def hung(self) -> bool:
        return self.ended.startswith(TOOK_LONGER)

    @property
    def failed(self) -> bool:
        return bool(self.raised or self.ended)


@dataclass(frozen=True)
class Problem:
    """Why one of the five files cannot be used."""

    file: str
    message: str  # for the student: file, line, what to do
    traceback: str = ""  # for staff


class Backend(Protocol):
    """Runs probes beside one hand-in."""

    tier: str
    results: Path  # the folder of the experiments' files
    broken: dict[str, Problem]  # by file; filled by `find_broken_files`
    warned: list[str]  # what else importing the files showed, for the student

    def observe(self, probe: str, args: dict, group: str = "") -> Reply:
        """Runs one probe. Probes of one `group` (a suite's tests of one exercise) may share a
        process where starting one is dear; probes of different groups never do."""


def ended_with(status: int | None) -> str:
    """How a process ended, as subprocess counts: -11 is by signal 11; None is not known."""
    if status is None:
        return ENDED
    if status >= 0:
        return f"{ENDED} with exit status {status}"
    known = {s.value: s.name for s in signal.Signals}
    return f"{ENDED} with signal {known.get(-status, -status)}"


def reply_of(message: bytes) -> Reply:
    """The reply in `message`. Raises wire.WireError when it is not one."""
    content = wire.decode(message)
    if type(content) is wire.Opaque:  # too much of it for the wire
        return Reply(value=content)
    if type(content) is not dict or list(content)[1:] != ["left"]:
        raise wire.WireError("the solver's answer is neither a value nor an exception")
    left = content["left"]
    if type(left) is not list or not all(type(words) is str for words in left):
        raise wire.WireError("the solver's account of what was left changed is malformed")
    left = tuple(words[:500] for words in left[:10])
    if "value" in content:
        return Reply(value=content["value"], left=left)
    if "raised" in content:
        return Reply(raised=_checked(content["raised"]), left=left)
    raise wire.WireError("the solver's answer is neither a value nor an exception")


def _checked(raised) -> dict:
    expected = {
        "type": str,
        "message": str,
        "file": (str, type(None)),
        "line": (int, type(None)),
        "own": list,
        "traceback": str,
    }
    if type(raised) is not dict or raised.keys() != expected.keys():
        raise wire.WireError("the solver's account of an exception has the wrong fields")
    for name, kind in expected.items():
        if not isinstance(raised[name], kind):
            raise wire.WireError(f"the solver's account of an exception has a bad {name}")
    if not all(type(step) is str for step in raised["own"]):
        raise wire.WireError("the solver's account of an exception has a bad step")
    return raised


@dataclass
class InProcess:
    """Probes run in this very process, through the same encoding as in the solver."""

    folders: list[Path]
    tier: str
    results: Path
    broken: dict[str, Problem] = field(default_factory=dict)
    warned: list[str] = field(default_factory=list)

    def observe(self, probe: str, args: dict, group: str = "") -> Reply:
        request = self._request(probe, args, self.tier)
        return reply_of(observe(Request.decoded(request.encoded())))

    def import_in_child(self, limit_s: float) -> Reply:
        """Imports every file in a forked child: that may end or hang its process.

        On the virtual tier whatever the tests' is: a fork cannot use the GPU once the parent has
        asked for it.
        """
        importlib.import_module("..gpu.virtual", __package__)  # seconds that are not the hand-in's
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        request = self._request("imports.every_file", {}, "virtual")
        with tempfile.TemporaryFile() as dump:

            def run():
                faulthandler.enable(dump)
                faulthandler.register(signal.SIGUSR1, dump)
                reply = observe(request, lambda files: theirs.send_bytes(_told(files)))
                theirs.send_bytes(b"R" + reply)

            child = context.Process(target=run)
            child.start()
            theirs.close()
            executing: tuple[str, ...] = ()
            end = time.monotonic() + limit_s
            try:
                while ours.poll(max(0.0, end - time.monotonic())):
                    message = ours.recv_bytes()
                    if message[:1] == b"R":
                        return reply_of(message[1:])
                    executing = tuple(wire.decode(message[1:]))
                ended = f"{TOOK_LONGER} {limit_s:g} s"
                os.kill(child.pid, signal.SIGUSR1)
                wait_for_dump(dump)
            except EOFError:
                child.join(DUMP_S)
                ended = ended_with(child.exitcode)
            finally:
                child.kill()
                child.join()
                ours.close()
            dump.seek(0)
            where = advice.place(dump.read().decode(errors="replace"), self.paths())
        return Reply(ended=ended, executing=executing, where=where)

    def paths(self) -> list[tuple[str, str]]:
        return paths_in(self.folders)

    def _request(self, probe: str, args: dict, tier: str) -> Request:
        return Request(probe, args, tier, [str(f) for f in self.folders], list(self.broken))


def paths_in(folders: list[Path]) -> list[tuple[str, str]]:
    """Where each of the five files may lie, and what to call it."""
    return [(str(folder / file), file) for folder in folders for file in assignment().files]


def wait_for_dump(dump) -> None:
    """Until faulthandler has written to the file, or has had time enough."""
    end = time.monotonic() + DUMP_S
    while not os.fstat(dump.fileno()).st_size and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.02)  # the rest of it


def _told(files: list[str]) -> bytes:
    return b"I" + wire.encode(files)


def find_broken_files(backend: Backend, try_import, folders: list[Path]) -> None:
    """Fills `backend.broken` with the files that cannot be imported, one culprit at a time.

    Each is replaced by the released one before the next attempt, so that an error in one file
    is not held against the files that import it.

    try_import: runs the probe that imports everything; a Reply comes back.
    folders: where the files lie, the first first.
    """
    files = assignment().modules.values()
    sources = {}
    for file in files:
        found = next((f / file for f in folders if (f / file).is_file()), None)
        if found:
            sources[file] = found.read_text(encoding="utf-8", errors="replace")
        else:
            backend.broken[file] = Problem(file, f"{file} is not in the hand-in")
    for _ in files:
        reply = try_import()
        if not reply.failed:
            backend.warned += reply.left
            return
        problem = _blame(reply, sources)
        if problem.file in backend.broken:
            return
        backend.broken[problem.file] = problem


def _blame(reply: Reply, sources: dict[str, str]) -> Problem:
    """The problem behind a failed import; what the process says of itself is not trusted.

    Raises BackendFault when the time was over before the hand-in's code had begun.
    """
    if reply.hung and not reply.executing:
        raise BackendFault(f"importing the hand-in {reply.ended}, and had not come to its code")
    told = reply.raised["file"] if reply.raised else "".join(reply.executing[-1:])
    file = told if told in sources else next(iter(assignment().modules.values()))
    if reply.raised:
        line = reply.raised["line"]
        where = f"{file}, line {line}" if line else file
        error, message = reply.raised["type"], reply.raised["message"]
        said = f"{error}: {message}" if message else error
        hint = advice.on_import(error, message, sources.get(file, ""))
        return Problem(
            file,
            f"{where}: {said}. {hint}{' ' if hint else ''}The file cannot be imported, so none of "
            "its exercises can be tested: mend this first.",
            reply.raised["traceback"],
        )
    where = reply.where if reply.where.startswith(file) else file
    return Problem(
        file,
        f"{where}: importing it {reply.ended}. Importing must only define things: move what it "
        "runs into a function.",
        reply.printed,
    )
