"""Runs one probe beside the hand-in's code and puts what it saw on the wire.

The same function serves `make test` (in the student's own process, so that breakpoints and
tracebacks work) and the solver (in a process of its own, in a sandbox).
"""

from __future__ import annotations

import importlib
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from shared.gpus import COURSE_GPU

from ..gpu import open_gpu
from . import defaults, wire
from .lab import Lab
from .modules import Modules


@dataclass
class Request:
    """One call of a probe."""

    probe: str  # "prof.timed_calls": module and function under probes/
    args: dict  # plain data
    tier: str  # "virtual" or "cuda"
    folders: list[str]  # where the hand-in's five files are
    replaced: list[str] = field(default_factory=list)  # files to take from the release instead

    def encoded(self) -> bytes:
        return wire.encode(asdict(self))

    @classmethod
    def decoded(cls, message: bytes) -> Request:
        return cls(**wire.decode(message))


def observe(request: Request, on_import: Callable[[list[str]], None] | None = None) -> bytes:
    """The reply, encoded: {"value": ...} or {"raised": {...}} when the hand-in's code raised.

    Beside it "left": what the hand-in's code left changed for the whole process, in words. It has
    been put back.
    on_import: see `Modules`; the solver reports with it which file hangs.
    """
    module_name, _, function = request.probe.partition(".")
    probe = getattr(importlib.import_module(f"..probes.{module_name}", __package__), function)
    _seed()
    modules = Modules([Path(f) for f in request.folders], request.replaced, on_import)
    # The GPU first: a hand-in that copies `time.perf_counter` at import must copy the virtual one.
    with open_gpu(request.tier, COURSE_GPU) as gpu, modules:
        before = defaults.now()
        try:
            reply = {"value": probe(Lab(gpu, modules), **request.args)}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: it is the hand-in's, not ours
            reply = {"raised": described(error, modules)}
        finally:
            left = defaults.put_back(before)
        reply["left"] = _left_by_imports(modules) + [_left_by_a_call(s, modules) for s in left]
        return wire.encode(reply)


def _left_by_imports(modules: Modules) -> list[str]:
    return [
        f"{_at(file, setting, modules)}: importing the file changes {setting.name} for everybody. "
        "That was undone: set it where it is needed, and put it back."
        for file, settings in modules.changed_by_import.items()
        for setting in settings
    ]


def _left_by_a_call(setting: defaults.Setting, modules: Modules) -> str:
    loaded = [file for name, file in modules.edited.items() if name in sys.modules]
    places = [_at(file, setting, modules) for file in loaded]
    where = next((place for place in places if "line" in place), "the code under test")
    return f"{where}: {setting.name} was left changed when the call was over: put it back."


def _at(file: str, setting: defaults.Setting, modules: Modules) -> str:
    line = defaults.line_of(setting, modules.source_of(file))
    return f"{file}, line {line}" if line else file


def described(error: BaseException, modules: Modules) -> dict:
    """An exception as data: type, message, the hand-in's file and line, and two tracebacks."""
    steps = traceback.extract_tb(error.__traceback__)
    own = [(modules.file_of(s.filename), s) for s in steps]
    own = [(file, s) for file, s in own if file]
    file, line = (own[-1][0], own[-1][1].lineno) if own else (None, None)
    if isinstance(error, SyntaxError) and error.filename:
        file, line = modules.file_of(error.filename) or file, error.lineno
    failed = modules.failed_import[1] if modules.failed_import[0] is error else ""
    if failed and failed != file and failed not in (f for f, _ in own):
        file, line = failed, None  # nothing of it ran: it could not even be compiled
    return {
        "type": type(error).__name__,
        "message": _message(error),
        "file": file,
        "line": line,
        "own": [f"{f}, line {s.lineno}, in {s.name}: {s.line}" for f, s in own[-8:]],
        "traceback": "".join(traceback.format_exception(error))[-20_000:],
    }


def _message(error: BaseException) -> str:
    try:
        return (error.msg if isinstance(error, SyntaxError) else str(error))[:2000]
    except Exception:  # an exception class of the hand-in's own may do anything
        return "(its message could not be read)"


def _seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
