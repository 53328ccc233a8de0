"""What passes between a probe and a test: plain data and tensors, with exact types.

A message is a JSON header and a safetensors blob. The header keeps the type of every value, so
that an object with a friendly `__eq__` arrives as `Opaque`, which equals nothing that a test
expects. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

MAX_DEPTH = 32
MAX_STRING = 200_000
MAX_BYTES = 256 << 20  # of one message; a probe's largest honest answer is a few megabytes
_LENGTHS = struct.Struct(">II")  # bytes of the header, bytes of the tensors


class WireError(ValueError):
    """A message that is not one: too large, malformed, or of an impossible type."""


@dataclass(frozen=True)
class Opaque:
    """Stands for an object that is not plain data, by the name of its type."""

    type_name: str

    def __str__(self) -> str:
        return f"an object of type {self.type_name}"


def encode(value) -> bytes:
    """Bytes of `value`: None, bool, int, float, str, list, tuple (as list), dict, tensor."""
    tensors: dict[str, torch.Tensor] = {}
    header = json.dumps(_plain(value, tensors, 0), allow_nan=False).encode()
    blob = save_tensors(tensors) if tensors else b""
    return _LENGTHS.pack(len(header), len(blob)) + header + blob


def decode(message: bytes):
    """The value of `message`. Raises WireError whatever is wrong with it."""
    if len(message) < _LENGTHS.size:
        raise WireError("the message is shorter than its own lengths")
    header_bytes, blob_bytes = _LENGTHS.unpack_from(message)
    if _LENGTHS.size + header_bytes + blob_bytes != len(message):
        raise WireError("the message's lengths do not add up")
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


def _plain(value, tensors: dict[str, torch.Tensor], depth: int):  # noqa: PLR0911
    """`value` as JSON. Only exact builtin types count as plain: a subclass may do anything."""
    if depth > MAX_DEPTH:
        return {"opaque": "nesting deeper than the wire carries"}
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        name = str(len(tensors))
        # A copy of its own: safetensors refuses shared storage, and views must not be widened.
        tensors[name] = value.detach().to("cpu").contiguous().clone()
        return {"tensor": name}
    if isinstance(value, np.generic) and kind.__module__ == "numpy":
        value = value.item()
        kind = type(value)
    if value is None or kind in (bool, str):
        return value[:MAX_STRING] if kind is str else value
    if kind is int:
        return {"int": str(value)} if abs(value) >= 1 << 53 else value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind in (list, tuple):
        return {"list": [_plain(v, tensors, depth + 1) for v in value]}
    if kind is dict and all(type(k) is str for k in value):
        return {"dict": {k: _plain(v, tensors, depth + 1) for k, v in value.items()}}
    return {"opaque": f"{kind.__module__}.{kind.__qualname__}"[:200]}


def _value(node, tensors: dict[str, torch.Tensor], depth: int):  # noqa: PLR0911
    if depth > 2 * MAX_DEPTH:
        raise WireError("the message is nested too deeply")
    if node is None or type(node) in (bool, int, float, str):
        if type(node) is float and not math.isfinite(node):
            raise WireError("the message holds a number beyond the floats")
        return node
    if type(node) is not dict or len(node) != 1:
        raise WireError("the message holds a node of no known kind")
    ((kind, content),) = node.items()
    match kind, content:
        case "list", list():
            return [_value(v, tensors, depth + 1) for v in content]
        case "dict", dict():
            return {k: _value(v, tensors, depth + 1) for k, v in content.items()}
        case "int", str() if len(content) <= 400:
            return int(content)
        case "float", ("nan" | "inf" | "-inf"):
            return float(content)
        case "tensor", str() if content in tensors:
            return tensors[content]
        case "opaque", str():
            return Opaque(content[:200])
    raise WireError(f"the message holds a node of no known kind: {kind[:40]!r}")
