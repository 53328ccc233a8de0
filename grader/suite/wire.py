"""What passes between a probe and a test: plain data and tensors, with exact types.

A message is a JSON header and a safetensors blob. The header keeps the type of every value, so
that an object with a friendly `__eq__` arrives as `Opaque`, which equals nothing that a test
expects. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, field

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

MAX_DEPTH = 32
MAX_STRING = 200_000
MAX_VALUES = 200_000  # lists that hold one another need few bytes for any number of them
MAX_INT_BITS = 1023  # a test may turn any integer that arrives into a float
MAX_BYTES = 256 << 20  # of one message; a probe's largest honest answer is a few megabytes
MAX_HEADER_BYTES = 64 << 20  # parsed, it takes up to twenty times as much memory
_LENGTHS = struct.Struct(">II")  # bytes of the header, bytes of the tensors


class WireError(ValueError):
    """A message that is not one: too large, malformed, or of an impossible type."""


@dataclass(frozen=True)
class Opaque:
    """Stands for an object that is not plain data, by the name of its type."""

    type_name: str

    def __str__(self) -> str:
        return f"an object of type {self.type_name}"


class _TooMuch(Exception):
    pass


@dataclass
class _Packing:
    """What one message has taken in so far."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: int = 0


def encode(value) -> bytes:
    """Bytes of `value`: None, bool, int, float, str, list, tuple (as list), dict, tensor.

    Whatever else it holds arrives as `Opaque`, and so does the whole when it is too much: nothing
    is raised, whatever the value.
    """
    packing = _Packing()
    try:
        header = json.dumps(_plain(value, packing, 0), allow_nan=False).encode()
    except _TooMuch:
        return encode(Opaque("an answer of more values than a probe may return"))
    blob = save_tensors(packing.tensors) if packing.tensors else b""
    if len(header) > MAX_HEADER_BYTES or len(header) + len(blob) + _LENGTHS.size > MAX_BYTES:
        return encode(Opaque("an answer of more bytes than a probe may return"))
    return _LENGTHS.pack(len(header), len(blob)) + header + blob


def decode(message: bytes):
    """The value of `message`. Raises WireError whatever is wrong with it."""
    if len(message) < _LENGTHS.size:
        raise WireError("the message is shorter than its own lengths")
    header_bytes, blob_bytes = _LENGTHS.unpack_from(message)
    if _LENGTHS.size + header_bytes + blob_bytes != len(message):
        raise WireError("the message's lengths do not add up")
    if header_bytes > MAX_HEADER_BYTES:
        raise WireError("the message's header is too large")
    start = _LENGTHS.size
    try:
        header = json.loads(
            message[start : start + header_bytes].decode(), parse_constant=_no_constants
        )
        blob = message[start + header_bytes :]
        return _value(header, load_tensors(blob) if blob else {}, 0)
    except WireError:
        raise
    except RecursionError:
        raise WireError("the message is nested too deeply") from None
    except Exception as error:
        raise WireError(f"the message cannot be read: {type(error).__name__}: {error}") from None


def _no_constants(name: str):
    raise WireError(f"the message holds {name}, which is not JSON")


def _plain(value, packing: _Packing, depth: int):  # noqa: PLR0911
    """`value` as JSON. Only exact builtin types count as plain: a subclass may do anything."""
    packing.values += 1
    if packing.values > MAX_VALUES:
        raise _TooMuch
    if depth > MAX_DEPTH:
        return _opaque("something nested more deeply than a probe may return")
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _tensor(value, packing)
    if issubclass(kind, np.generic) and kind.__module__ == "numpy":  # isinstance asks the object
        value = value.item()
        kind = type(value)
    if value is None or kind in (bool, str):
        return value[:MAX_STRING] if kind is str else value
    if kind is int:
        if value.bit_length() > MAX_INT_BITS:
            return _opaque(f"int, of {value.bit_length()} bits")
        return {"int": str(value)} if abs(value) >= 1 << 53 else value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind in (list, tuple):
        return {"list": [_plain(v, packing, depth + 1) for v in value]}
    if kind is dict and all(type(k) is str and len(k) <= MAX_STRING for k in value):
        return {"dict": {k: _plain(v, packing, depth + 1) for k, v in value.items()}}
    if kind is Opaque:
        return _opaque(value.type_name)
    return _opaque(_name_of(kind))


def _name_of(kind: type) -> str:
    try:
        return f"{kind.__module__}.{kind.__qualname__}"
    except Exception:  # a metaclass of the hand-in's own may do anything
        return "unknown"


def _opaque(type_name: str) -> dict:
    return {"opaque": type_name[:200]}


def _tensor(value: torch.Tensor, packing: _Packing) -> dict:
    name = str(len(packing.tensors))
    try:
        # A copy of its own: safetensors refuses shared storage, and views must not be widened.
        plain = value.detach().to("cpu").contiguous().clone().resolve_conj().resolve_neg()
        save_tensors({name: plain[:0] if plain.dim() else plain})
    except Exception:  # sparse, meta, quantized, or larger than memory
        return _opaque(f"torch.Tensor ({value.layout}, {value.dtype}, on {value.device})")
    packing.tensors[name] = plain
    return {"tensor": name}


def _value(node, tensors: dict[str, torch.Tensor], depth: int):  # noqa: PLR0911
    if depth > 2 * MAX_DEPTH:
        raise WireError("the message is nested too deeply")
    if type(node) is int and node.bit_length() > MAX_INT_BITS:
        raise WireError("the message holds a number beyond the floats")
    if type(node) is float and not math.isfinite(node):
        raise WireError("the message holds a number beyond the floats")
    if node is None or type(node) in (bool, int, float, str):
        return node
    if type(node) is not dict or len(node) != 1:
        raise WireError("the message holds a node of no known kind")
    ((kind, content),) = node.items()
    match kind, content:
        case "list", list():
            return [_value(v, tensors, depth + 1) for v in content]
        case "dict", dict():
            return {k: _value(v, tensors, depth + 1) for k, v in content.items()}
        case "int", str() if len(content) <= 400 and int(content).bit_length() <= MAX_INT_BITS:
            return int(content)
        case "float", ("nan" | "inf" | "-inf"):
            return float(content)
        case "tensor", str() if content in tensors:
            return tensors[content]
        case "opaque", str():
            return Opaque(content[:200])
    raise WireError(f"the message holds a node of no known kind: {kind[:40]!r}")
