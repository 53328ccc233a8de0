"""What the functions of a1/perfmodel.py return, and what a prediction does besides."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from time import monotonic as real_monotonic  # before a virtual GPU replaces the clock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from olmoe.config import OlmoeConfig
from shared.gpus import COURSE_GPU

SLOW_S = 1.0
SLOW_CALLS = 3  # so many slow predictions are waited for; the rest are not made


def values(lab, *, function: str, calls: list[list]) -> list:
    """What `function` returns for each list of positional arguments.

    An argument {"config": {...}} stands for an OlmoeConfig with these sizes, and {"gpu": {...}}
    for the course's GPU with these figures changed.
    """
    called = getattr(lab.load("a1.perfmodel"), function)
    return [_plain(called(*map(_argument, arguments))) for arguments in calls]


def predictions(lab, *, function: str, steps: list[list]) -> list[dict]:
    """`function` of C9 for each [layers, micro_batch_size, seqlen, recompute].

    Each prediction is {"value", "raised", "offence"}: what came back; the exception instead, as
    "ValueError: ..."; and what plain arithmetic does not do, in words ("" if nothing), such as
    "opened the file truth.csv". The first NotImplementedError goes to the caller, and so does the
    first exception if nothing else comes.
    """
    with _watched() as offences:
        predict = getattr(lab.load("a1.perfmodel"), function)
    # Importing a library may read files of its own, but a table of measurements is no library's.
    of_import = [f"{o} when it was imported" for o in offences if o.rstrip("'").endswith(_TABLES)]
    seen, errors, slow = [], [], 0
    for layers, micro_batch_size, seqlen, recompute in steps:
        if slow >= SLOW_CALLS:
            seen.append({"value": None, "raised": "", "offence": "was slow too often before"})
            continue
        cfg = OlmoeConfig(n_layers=layers)
        value, raised = None, ""
        with _watched() as offences:
            started_s = real_monotonic()
            try:
                value = predict(cfg, micro_batch_size, seqlen, recompute)
            except NotImplementedError:
                raise
            except Exception as error:
                errors.append(error)
                raised = f"{type(error).__name__}: {error}"[:300]
            took_s = real_monotonic() - started_s
        if took_s > SLOW_S:
            slow += 1
            offences.append(f"took {took_s:.1f} s")
        offence = (of_import + offences + [""])[0]
        seen.append({"value": _plain(value), "raised": raised, "offence": offence})
    if errors and len(errors) == len(steps):
        raise errors[0]
    return seen


def _argument(value):
    if isinstance(value, dict) and "config" in value:
        return OlmoeConfig(**value["config"])
    if isinstance(value, dict) and "gpu" in value:
        return replace(COURSE_GPU, **value["gpu"])
    return value


def _plain(value):
    """Numbers in any of the types that arithmetic leads to, as Python's own."""
    if isinstance(value, tuple) and type(value) is not tuple:  # a namedtuple
        return [_plain(v) for v in tuple.__iter__(value)]
    if type(value) in (tuple, list):
        return [_plain(v) for v in value]
    if type(value) in (Fraction, Decimal):
        return float(value)
    if type(value) is np.ndarray and value.size <= 2 and value.dtype.kind in "iuf":
        return value.tolist()
    return value


# ---- what plain arithmetic does not do -------------------------------------------------------

_watching: list[str] | None = None  # offences of the prediction under way
_hooked = False

_TABLES = (".csv", ".tsv", ".npy", ".npz", ".parquet", ".pickle", ".pkl", ".pt")
_CODE = (".py", ".pyc", ".so", ".pyd")  # a late import reads these
_EVENTS = {
    "subprocess.Popen": "started a process",
    "os.system": "started a process",
    "os.exec": "started a process",
    "os.posix_spawn": "started a process",
    "os.spawn": "started a process",
    "os.fork": "started a process",
    "os.forkpty": "started a process",
    "socket.__new__": "opened a socket",
    "socket.getaddrinfo": "used the network",
    "sqlite3.connect": "opened a database",
}
_DEVICE_CALLS = (
    "Event",
    "Stream",
    "_lazy_init",
    "current_device",
    "current_stream",
    "get_device_name",
    "get_device_properties",
    "init",
    "max_memory_allocated",
    "mem_get_info",
    "memory_allocated",
    "synchronize",
)


def _audit(event: str, arguments: tuple) -> None:
    if _watching is None:
        return
    if event == "open":
        path = arguments[0]
        if isinstance(path, (str, bytes, os.PathLike)):
            name = os.path.basename(os.fsdecode(path))  # the folder is the machine's own business
            if not name.endswith(_CODE):
                _watching.append(f"opened the file {name!r}"[:120])
    elif event in _EVENTS:
        _watching.append(_EVENTS[event])


class _DeviceOperations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if any(isinstance(t, torch.Tensor) and t.is_cuda for t in (result, *args)):
            _watching.append("used a GPU")
        return result


@contextlib.contextmanager
def _watched():
    """Collects what the code inside does that plain arithmetic does not."""
    global _watching, _hooked  # noqa: PLW0603 - an audit hook lives as long as its process
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    offences: list[str] = []
    with contextlib.ExitStack() as stack:
        for name in _DEVICE_CALLS:
            if hasattr(torch.cuda, name):
                stack.enter_context(_told(name, offences))
        stack.enter_context(_DeviceOperations())
        _watching = offences
        try:
            yield offences
        finally:
            _watching = None


@contextlib.contextmanager
def _told(name: str, offences: list[str]):
    original = getattr(torch.cuda, name)

    def told(*args, **kwargs):
        offences.append("used a GPU")
        return original(*args, **kwargs)

    setattr(torch.cuda, name, told)
    try:
        yield
    finally:
        setattr(torch.cuda, name, original)
