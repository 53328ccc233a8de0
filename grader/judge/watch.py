"""The caps on one probe, seen from outside: nothing that a hand-in says is asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from shared.assignment import Limits

from ..suite.backend import TOOK_LONGER
from .contain import Cell

USED, HAD = "used more than", "had more than"
WROTE, PRINTED = "wrote more than", "printed more than"
TOO_MUCH = (USED, HAD, WROTE, PRINTED)  # how the words for an exceeded cap begin
WATCH_S = 0.05  # how often anybody looks
HALTED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def out_of_service(zygote: psutil.Process) -> str:
    """What was done to the zygote: "stopped" (or traced), "ended", or nothing."""
    try:
        status = zygote.status()
    except psutil.Error:
        return "ended"
    return {psutil.STATUS_ZOMBIE: "ended"}.get(status, "stopped" if status in HALTED else "")


@dataclass
class Watch:
    """Made when a request is sent; `exceeded` is to be asked until the answer is there."""

    zygote: psutil.Process
    cell: Cell
    limit_s: float
    printed: Callable[[], int]  # bytes that the probe's process has printed so far
    limits: Limits = field(init=False)

    def __post_init__(self):
        self.limits = self.cell.limits
        self._end = time.monotonic() + self.limit_s
        self._next_look = 0.0
        self._printed_before = self.printed()
        # A process that answers for a whole group has used some already.
        self._cpu_before = sum(_cpu_s(p) for p in self._processes())

    def exceeded(self) -> str:
        """What was exceeded, in words that follow "the code under test"; or nothing."""
        if time.monotonic() > self._end:
            return f"{TOOK_LONGER} {self.limit_s:g} s"
        if self.printed() - self._printed_before > self.limits.printed_mib << 20:
            return f"{PRINTED} {self.limits.printed_mib} MiB"
        if time.monotonic() < self._next_look:
            return ""
        self._next_look = time.monotonic() + WATCH_S
        if done := out_of_service(self.zygote):
            return f"{done} the process that tests it"
        return self._by_processes() or self._by_files()

    def _by_processes(self) -> str:
        limits, processes = self.limits, self._processes()
        if len(processes) > limits.processes:
            return f"{HAD} {limits.processes} processes"
        if sum(_resident_bytes(p) for p in processes) > limits.resident_mib << 20:
            return f"{USED} {limits.resident_mib} MiB of memory"
        if sum(_cpu_s(p) for p in processes) - self._cpu_before > limits.cpu_s:
            return f"{USED} {limits.cpu_s} s of processor time"
        return ""

    def _by_files(self) -> str:
        written_bytes, written_files = self.cell.written(self.zygote.pid)
        if written_bytes >= self.limits.written_mib << 20:  # one file stops growing at this size
            return f"{WROTE} {self.limits.written_mib} MiB of files"
        if written_files > self.limits.written_files:
            return f"{WROTE} {self.limits.written_files} files"
        return ""

    def _processes(self) -> list[psutil.Process]:
        try:
            return self.zygote.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _resident_bytes(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def _cpu_s(process: psutil.Process) -> float:
    """Of the process, and of those of its children that it has waited for."""
    with contextlib.suppress(psutil.Error):
        return sum(process.cpu_times()[:4])
    return 0.0
