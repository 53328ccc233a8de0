"""Where probes run. `InProcess` is `make test`; the judge's solver is the other one."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shared.assignment import assignment

from . import wire
from .observe import Request, observe


@dataclass(frozen=True)
class Reply:
    """What became of one probe: exactly one of value, raised, ended."""

    value: object = None
    raised: dict | None = None  # see observe.described
    ended: str = ""  # the process did not answer: why, in words for the student
    executing: tuple[str, ...] = ()  # files being imported when it ended
    printed: str = ""  # what the hand-in's code printed

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

    def observe(self, probe: str, args: dict, group: str = "") -> Reply:
        """Runs one probe. Probes of one `group` (a suite's tests of one exercise) may share a
        process where starting one is dear; probes of different groups never do."""


def reply_of(message: bytes, printed: str = "") -> Reply:
    """The reply in `message`. Raises wire.WireError when it is not one."""
    content = wire.decode(message)
    if type(content) is dict and list(content) == ["value"]:
        return Reply(value=content["value"], printed=printed)
    if type(content) is dict and list(content) == ["raised"]:
        return Reply(raised=_checked(content["raised"]), printed=printed)
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

    def observe(self, probe: str, args: dict, group: str = "") -> Reply:
        return reply_of(observe(Request.decoded(self._request(probe, args).encoded())))

    def observe_in_child(self, probe: str, args: dict, limit_s: float) -> Reply:
        """The same in a forked child, for code that may end or hang its process."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        request = self._request(probe, args)

        def run():
            theirs.send_bytes(
                b"R" + observe(request, lambda files: theirs.send_bytes(_told(files)))
            )

        child = context.Process(target=run)
        child.start()
        theirs.close()
        executing: tuple[str, ...] = ()
        try:
            while ours.poll(limit_s):
                message = ours.recv_bytes()
                if message[:1] == b"R":
                    return reply_of(message[1:])
                executing = tuple(wire.decode(message[1:]))
            why = f"took longer than {limit_s:g} s"
        except EOFError:
            why = "ended the Python process"
        finally:
            child.kill()
            child.join()
        return Reply(ended=why, executing=executing)

    def _request(self, probe: str, args: dict) -> Request:
        return Request(probe, args, self.tier, [str(f) for f in self.folders], list(self.broken))


def _told(files: list[str]) -> bytes:
    return b"I" + wire.encode(files)


def find_broken_files(backend: Backend, try_import, present: set[str]) -> None:
    """Fills `backend.broken` with the files that cannot be imported, one culprit at a time.

    Each is replaced by the released one before the next attempt, so that an error in one file
    is not held against the files that import it.

    try_import: runs the probe that imports everything; a Reply comes back.
    present: those of the five files that the hand-in holds.
    """
    files = assignment().modules.values()
    for file in files:
        if file not in present:
            backend.broken[file] = Problem(file, f"{file} is not in the hand-in")
    for _ in files:
        reply = try_import()
        if not reply.failed:
            return
        problem = _blame(reply)
        if problem.file in backend.broken:
            return
        backend.broken[problem.file] = problem


def _blame(reply: Reply) -> Problem:
    first = next(iter(assignment().modules.values()))
    if reply.raised:
        file = reply.raised["file"] or first
        line = reply.raised["line"]
        where = f"{file}, line {line}" if line else file
        said = f"{reply.raised['type']}: {reply.raised['message']}"
        return Problem(
            file,
            f"{where}: {said}. The file cannot be imported, so none of its exercises can be "
            "tested: mend this first.",
            reply.raised["traceback"],
        )
    file = reply.executing[-1] if reply.executing else first
    return Problem(
        file,
        f"{file}: importing it {reply.ended}. Importing must only define things: move what it "
        "runs into a function.",
    )
