"""The clockwork of the virtual GPU: a host clock, and streams that finish work in virtual time.

Nothing here knows torch. Times are integer nanoseconds since the machine was opened, so sums are
exact and the same everywhere. Because the machine is simulated, the moment at which a stream will
finish is known as soon as work is enqueued; the host may not look at it before its own clock has
got there, which is what `Event` and `synchronize` enforce.
"""

import threading
from collections import deque

from . import costs

NS_PER_MS = 1_000_000


class Stream:
    """One in-order queue of device work. Streams overlap freely and do not slow each other."""

    __slots__ = ("ends", "free_at", "number")

    def __init__(self, number: int):
        self.number = number
        self.free_at = 0  # when the last enqueued work ends
        self.ends = deque()  # when each pending launch ends: the queue's depth


class Machine:
    """Host clock and streams. Methods are safe to call from several threads."""

    def __init__(self):
        self.lock = threading.RLock()
        self.now = 0  # the host's clock
        self.asleep = 0  # the part of it spent in time.sleep
        self.launches = 0
        self._streams = [Stream(0)]
        self._current = {}  # thread id -> Stream
        self._logs = []
        self._logs_launches = False  # whether any of them wants single launches
        self._events = 0

    # -- host ---------------------------------------------------------------------------------

    def advance(self, ns: int) -> int:
        """The host is busy for `ns`; returns its clock."""
        with self.lock:
            self.now += ns
            return self.now

    def sleep(self, ns: int) -> None:
        with self.lock:
            self.now += ns
            self.asleep += ns

    # -- streams ------------------------------------------------------------------------------

    @property
    def default_stream(self) -> Stream:
        return self._streams[0]

    @property
    def current_stream(self) -> Stream:
        """The calling thread's current stream."""
        return self._current.get(threading.get_ident(), self._streams[0])

    @current_stream.setter
    def current_stream(self, stream: Stream) -> None:
        self._current[threading.get_ident()] = stream

    def new_stream(self) -> Stream:
        with self.lock:
            self._streams.append(Stream(len(self._streams)))
            return self._streams[-1]

    def launch(self, duration_ns: int, kind: str, name: str, stream: Stream | None = None) -> None:
        """Enqueue `duration_ns` of device work: host time for the launch, then its turn."""
        with self.lock:
            stream = stream or self.current_stream
            self._make_room(stream)
            self.now += costs.LAUNCH_NS
            self.launches += 1
            start = max(self.now, stream.free_at)
            stream.free_at = start + duration_ns
            stream.ends.append(stream.free_at)
            if self._logs and (kind != "launch" or self._logs_launches):
                self.log(
                    kind,
                    name,
                    stream=stream.number,
                    device_ms=start / NS_PER_MS,
                    duration_ms=duration_ns / NS_PER_MS,
                )

    def _make_room(self, stream: Stream) -> None:
        ends = stream.ends
        while ends and ends[0] <= self.now:
            ends.popleft()
        if len(ends) >= costs.QUEUE_DEPTH:
            self.now = ends.popleft()

    def mark(self, stream: Stream) -> int:
        """Record an event: the time at which `stream` reaches this point."""
        with self.lock:
            self.now += costs.EVENT_RECORD_NS
            return max(self.now, stream.free_at)

    def new_event(self) -> int:
        with self.lock:
            self._events += 1
            return self._events

    def wait(self, stream: Stream, reached_ns: int) -> None:
        """Work enqueued to `stream` from now on starts no earlier than `reached_ns`."""
        with self.lock:
            self.now += costs.EVENT_RECORD_NS
            stream.free_at = max(stream.free_at, reached_ns)

    def poll(self, reached_ns: int) -> bool:
        """Has the host's clock passed `reached_ns`? Asking takes time."""
        return self.advance(costs.QUERY_NS) >= reached_ns

    def synchronize(self, cause: str, reached_ns: int | None = None, stream=None) -> None:
        """Block the host until `reached_ns`, or until `stream` (default: all) has finished."""
        with self.lock:
            if reached_ns is None:
                streams = [stream] if stream else self._streams
                reached_ns = max(each.free_at for each in streams)
            waited = max(0, reached_ns - self.now)
            self.log("synchronize", cause, waited_ms=waited / NS_PER_MS)
            self.now += waited + costs.SYNCHRONIZE_NS

    # -- log ----------------------------------------------------------------------------------

    def log(self, kind: str, name: str, **details) -> None:
        """Append one entry to every log being recorded."""
        if not self._logs:
            return
        with self.lock:
            stream = self.current_stream
            entry = {
                "kind": kind,
                "name": name,
                "host_ms": self.now / NS_PER_MS,
                "device_ms": max(self.now, stream.free_at) / NS_PER_MS,
                "stream": stream.number,
                **details,
            }
            for log, with_launches in self._logs:
                if with_launches or kind != "launch":
                    log.append(dict(entry))

    def start_log(self, launches: bool) -> list[dict]:
        log = []
        with self.lock:
            self._logs.append((log, launches))
            self._logs_launches = any(each for _, each in self._logs)
        return log

    def stop_log(self, log: list[dict]) -> None:
        with self.lock:
            self._logs = [pair for pair in self._logs if pair[0] is not log]
            self._logs_launches = any(each for _, each in self._logs)
