"""What crosses from a probe to a test: exact types, nothing lost, and nothing that can do harm."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save as save_tensors

from ...suite import wire
from ...suite.wire import Opaque, WireError, decode, encode

INTS = st.integers(-(2**1023) + 1, 2**1023 - 1)
SCALARS = st.one_of(st.none(), st.booleans(), INTS, st.floats(), st.text(max_size=40))
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=25,
)
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64),
]
FEW = settings(max_examples=80, deadline=None)


def same(a, b) -> bool:
    """Equal, of the same types throughout, NaN equal to NaN, and -0.0 not to 0.0."""
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return struct.pack(">d", a) == struct.pack(">d", b) or (math.isnan(a) and math.isnan(b))
    if type(a) is list:
        return len(a) == len(b) and all(map(same, a, b))
    if type(a) is dict:
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def message(header: bytes, blob: bytes = b"") -> bytes:
    return struct.pack(">II", len(header), len(blob)) + header + blob


# ---- Round trip ---------------------------------------------------------------------------------


@FEW
@given(PLAIN)
def test_plain_data_arrives_as_it_was_sent(value):
    assert same(decode(encode(value)), value)


@FEW
@given(PLAIN)
def test_what_is_sent_is_json_as_the_standard_has_it(value):
    sent = encode(value)
    (length,) = struct.unpack_from(">I", sent)

    def refuse(word):
        raise AssertionError(word)

    json.loads(sent[8 : 8 + length], parse_constant=refuse)


@FEW
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_tensors_arrive_bit_by_bit(dtype, shape, seed, turned):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 50
    sent = numbers.to(dtype)
    sent = sent.transpose(0, -1) if turned and sent.dim() > 1 else sent
    got = decode(encode({"a": [sent, 1], "b": sent}))
    for tensor in (got["a"][0], got["b"]):
        assert tensor.dtype == sent.dtype and tensor.shape == sent.shape
        assert tensor.is_contiguous() and torch.equal(tensor, sent)


def test_of_a_view_only_what_is_seen_is_sent():
    big = torch.zeros(1_000_000)
    assert len(encode(big[:3])) < 1000
    assert len(encode([big[:3], big[:3]])) < 1000


def test_a_parameter_arrives_as_a_tensor_without_gradients():
    got = decode(encode(torch.nn.Parameter(torch.ones(2))))
    assert type(got) is torch.Tensor and not got.requires_grad


def test_negated_and_conjugated_views_arrive_as_what_they_are():
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(decode(encode(x.conj())), x.conj())
    assert torch.equal(decode(encode(x.conj().imag)), x.conj().imag)


@pytest.mark.parametrize(
    "value, arrives",
    [
        (np.float64(2.5), 2.5),
        (np.float32(0.5), 0.5),
        (np.int32(7), 7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ((1, (2, 3)), [1, [2, 3]]),
        (2**53, 2**53),
        (-(2**1000), -(2**1000)),
    ],
)
def test_what_is_nearly_plain_arrives_as_plain(value, arrives):
    assert same(decode(encode(value)), arrives)


# ---- What is not plain --------------------------------------------------------------------------


class EqualToEverything:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


class Number(int):
    pass


class Words(str):
    __slots__ = ()


class Items(list):
    def __iter__(self):
        raise RuntimeError("asked")


class Mapping(dict):
    pass


class Picture(torch.Tensor):
    pass


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("asked")

    __str__ = __repr__

    def __getattribute__(self, name):
        raise RuntimeError("asked")


@pytest.mark.parametrize(
    "value",
    [
        *(EqualToEverything(), Number(3), Words("a"), Items([1]), Mapping(a=1)),
        *(object(), len, int, {1, 2}, b"bytes", 1j, range(3), {1: 2}, {("a",): 1}),
        *(np.zeros(2), np.datetime64("2026-01-01"), np.complex64(1j), torch.float32),
        torch.ones(2).as_subclass(Picture),
        *(torch.ones(2, device="meta"), torch.eye(2).to_sparse()),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        torch.ones(1).expand(10**14),  # larger than memory
        *(10**400, -(10**5000), 2**1023),
    ],
    ids=lambda value: type.__repr__(type(value)),
)
def test_anything_else_is_opaque_and_equals_nothing(value):
    got = decode(encode([1, value, "after"]))
    assert got[0] == 1 and got[2] == "after"
    assert type(got[1]) is Opaque and got[1] not in (1, 1.0, True, "a", None)
    assert str(got[1]).startswith("an object of type ")


def test_an_object_is_not_even_asked_for_its_name():
    assert type(decode(encode([Unspeakable()]))[0]) is Opaque


def test_an_object_says_its_type_and_no_more():
    assert decode(encode(EqualToEverything())).type_name.endswith("test_wire.EqualToEverything")
    long = type("x" * 5000, (), {})
    assert len(decode(encode(long())).type_name) <= 200


def test_what_has_no_end_is_cut_off():
    endless: list = [1]
    endless.append(endless)
    got, depth = decode(encode(endless)), 0
    while type(got) is list:
        got, depth = got[1], depth + 1
    assert type(got) is Opaque and depth == wire.MAX_DEPTH + 1
    branching: list = []
    branching += [branching, branching]
    assert type(decode(encode(branching))) is Opaque


@pytest.mark.parametrize("value", [[0] * (wire.MAX_VALUES + 1), {"a": [[0] * 1000] * 1000}])
def test_more_than_a_probe_may_return_is_opaque_as_a_whole(value):
    assert "more values" in decode(encode(value)).type_name


def test_more_bytes_than_a_message_may_have_are_opaque_as_a_whole(monkeypatch):
    monkeypatch.setattr(wire, "MAX_BYTES", 10_000)
    assert "more bytes" in decode(encode(torch.zeros(10_000))).type_name
    monkeypatch.setattr(wire, "MAX_HEADER_BYTES", 1_000)
    assert "more bytes" in decode(encode(["x" * 100] * 20)).type_name


def test_long_texts_are_cut():
    assert len(decode(encode("x" * (wire.MAX_STRING + 5)))) == wire.MAX_STRING


# ---- What a hand-in could send ------------------------------------------------------------------


@FEW
@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_wire_error(data):
    try:
        decode(data)
    except WireError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 40),
)
def test_a_damaged_message_is_a_value_or_a_wire_error(hits, cut):
    data = bytearray(encode({"a": [1, 2.5, "x", None], "t": torch.arange(6.0), "n": 2**70}))
    for at, byte in hits:
        data[at % len(data)] = byte
    try:
        decode(bytes(data[: len(data) - cut]))
    except WireError as error:
        assert str(error)


@FEW
@given(st.binary(max_size=60), st.integers(0, 2**64 - 1))
def test_any_blob_beside_a_good_header_is_a_value_or_a_wire_error(rest, claimed):
    for blob in (rest, struct.pack("<Q", claimed) + rest, struct.pack("<Q", len(rest)) + rest):
        try:
            decode(message(b'{"tensor":"0"}', blob))
        except WireError as error:
            assert str(error)


def tensors(description: dict, data: bytes = b"\0" * 8) -> bytes:
    head = json.dumps(description).encode()
    return struct.pack("<Q", len(head)) + head + data


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        tensors({"0": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}}),
        tensors({"0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}),
        tensors({"0": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}),
        tensors({"0": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}),
        tensors({"0": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}),
        tensors({"0": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}),
        tensors({"other": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}),
        tensors({"__metadata__": {"0": "F32"}}, b""),
        struct.pack("<Q", 2**63) + b"{}",
        save_tensors({"0": torch.ones(2)})[:-1],
    ],
)
def test_tensors_that_lie_about_themselves_are_refused(blob):
    with pytest.raises(WireError):
        decode(message(b'{"tensor":"0"}', blob))


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"[1]", b"{}", b"{", b"\xff"),
        b"1" + b"0" * 400,
        b"1" * 5000,
        b"[" * 100_000,
        b'{"list":[' * 5000 + b"1" + b"]}" * 5000,
        b'{"list":[' * 80 + b"1" + b"]}" * 80,
        *(b'{"list":1}', b'{"dict":[]}', b'{"list":[],"dict":{}}', b'{"pickle":"gAR9"}'),
        *(b'{"int":"abc"}', b'{"int":7}', b'{"int":""}', b'{"float":"1.5"}', b'{"float":"huge"}'),
        b'{"int":"1' + b"0" * 399 + b'"}',
        b'{"int":"' + b"9" * 5000 + b'"}',
        *(b'{"tensor":"7"}', b'{"tensor":0}', b'{"opaque":null}', b'{"__class__":"x"}'),
        b'{"' + b"k" * 10_000 + b'":1}',
    ],
    ids=lambda header: header[:12].decode(errors="replace") + f"~{len(header)}",
)
def test_a_header_that_is_none_of_ours_is_refused_in_few_words(header):
    with pytest.raises(WireError) as refused:
        decode(message(header))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("data", [b"", b"\0", b"\0" * 7, struct.pack(">II", 2**32 - 1, 0)])
def test_lengths_that_do_not_add_up_are_refused(data):
    with pytest.raises(WireError):
        decode(data)


def test_a_header_too_large_to_parse_is_not_parsed(monkeypatch):
    monkeypatch.setattr(wire, "MAX_HEADER_BYTES", 10)
    with pytest.raises(WireError, match="too large"):
        decode(message(b'"aaaaaaaaaaaaaaaa"'))
