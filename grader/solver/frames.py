"""Length-framed messages on the socket between the judge and a probe's process.

Every request has a number that the judge draws when it asks, and whatever answers it carries the
same: a process that answers several requests cannot have answered one before it was asked.
"""

from __future__ import annotations

import secrets
import socket
import struct

from ..suite.wire import MAX_BYTES, WireError

REQUEST, IMPORTING, REPLY = b"Q", b"I", b"R"
NUMBER_BYTES = 16
_HEAD = struct.Struct(f">c{NUMBER_BYTES}sI")  # kind of message, number, bytes that follow


def draw_number() -> bytes:
    return secrets.token_bytes(NUMBER_BYTES)


def message(kind: bytes, number: bytes, body: bytes) -> bytes:
    return _HEAD.pack(kind, number, len(body)) + body


def send(sock: socket.socket, kind: bytes, number: bytes, body: bytes) -> None:
    sock.sendall(message(kind, number, body))


def receive(sock: socket.socket) -> tuple[bytes, bytes]:
    """Number and body of the next message, blocking. Raises EOFError when nobody is there."""
    _kind, number, length = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return number, _exactly(sock, length)


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
    """Takes the answers to one request out of a stream that is read piecemeal, each bounded."""

    def __init__(self, number: bytes):
        self._number = number
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Messages completed by `data`, as (kind, body).

        Raises WireError for one that is too large, of no known kind, or no answer to the request.
        """
        self._buffer += data
        complete = []
        while len(self._buffer) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(self._buffer)
            if length > MAX_BYTES or kind not in (IMPORTING, REPLY):
                raise WireError("the solver sent a message that is not one of ours")
            if number != self._number:
                raise WireError("the solver answered what it was not asked")
            if len(self._buffer) < _HEAD.size + length:
                break
            complete.append((kind, bytes(self._buffer[_HEAD.size : _HEAD.size + length])))
            del self._buffer[: _HEAD.size + length]
        return complete
