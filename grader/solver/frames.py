"""Length-framed messages on the socket between the judge and a probe's process."""

from __future__ import annotations

import socket
import struct

from ..suite.wire import MAX_BYTES, WireError

REQUEST, IMPORTING, REPLY = b"Q", b"I", b"R"
_HEAD = struct.Struct(">cI")  # kind of message, bytes that follow


def message(kind: bytes, body: bytes) -> bytes:
    return _HEAD.pack(kind, len(body)) + body


def send(sock: socket.socket, kind: bytes, body: bytes) -> None:
    sock.sendall(message(kind, body))


def receive(sock: socket.socket) -> bytes:
    """The body of the next message, blocking. Raises EOFError when the other side is gone."""
    _kind, length = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return _exactly(sock, length)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other side closed the socket")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Reader:
    """Takes messages out of a stream that is read piecemeal, with a bound on each."""

    def __init__(self):
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Messages completed by `data`, as (kind, body). Raises WireError for one too large."""
        self._buffer += data
        complete = []
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            if length > MAX_BYTES or kind not in (IMPORTING, REPLY):
                raise WireError("the solver sent a message that is not one of ours")
            if len(self._buffer) < _HEAD.size + length:
                break
            complete.append((kind, bytes(self._buffer[_HEAD.size : _HEAD.size + length])))
            del self._buffer[: _HEAD.size + length]
        return complete
