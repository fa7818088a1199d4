"""Tests of tasks.codec with random values and bytes: a round trip or one CodecError, within bounded memory."""

from __future__ import annotations

import struct
from datetime import timedelta, timezone
from typing import Any

import hypothesis.extra.numpy as arrays_of
import msgpack
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.wire_values import extension, message, peak_memory, same

from tasks.codec.encoder import ARRAY, BLOB, DTYPES, MAGIC, SCALAR, TENSOR, TUPLE
from tasks.codec.serializer import decode, encode
from warren.errors import CodecError

many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
SLICES = st.sampled_from([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), slice(0, 0)])
TORCH_DTYPES = st.sampled_from(
    [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)

# Many empty containers take the most memory: about a hundred bytes per byte of the message.
BYTES_PER_BYTE, BYTES_BESIDES = 128, 1 << 18


@st.composite
def strided_arrays(draw: st.DrawFn) -> np.ndarray:
    array = draw(arrays_of.arrays(st.sampled_from(DTYPES), SHAPES))
    if array.ndim and draw(st.booleans()):
        array = array[tuple(draw(SLICES) for _ in range(draw(st.integers(1, array.ndim))))]
    if draw(st.booleans()):
        array = array.transpose(draw(st.permutations(range(array.ndim))))
    return array


@st.composite
def strided_tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(SHAPES)
    raw = draw(arrays_of.arrays(np.int8, shape))
    tensor = torch.from_numpy(raw.copy()).to(draw(TORCH_DTYPES))
    if tensor.ndim and draw(st.booleans()):
        tensor = tensor[:: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        tensor = tensor.permute(draw(st.permutations(range(tensor.ndim))))
    return tensor


texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | texts
    | st.binary()
    | st.binary(min_size=4090, max_size=4100)
    | st.datetimes(timezones=st.none() | st.integers(-1439, 1439).map(lambda at: timezone(timedelta(minutes=at))))
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from(DTYPES).flatmap(lambda dtype: arrays_of.from_dtype(dtype.newbyteorder("=")))
)
keys = st.recursive(texts | st.integers() | st.binary() | st.booleans() | st.none(), st.tuples, max_leaves=3)
values = st.recursive(
    scalars | strided_arrays() | strided_tensors(),
    lambda inner: (
        st.lists(inner, max_size=6) | st.lists(inner, max_size=6).map(tuple) | st.dictionaries(keys, inner, max_size=5)
    ),
    max_leaves=8,
)


@many
@given(values)
def test_whatever_can_be_encoded_comes_back(value: Any) -> None:
    assert same(value, decode(encode(value)))


@many
@given(values, st.sampled_from([{1}, 1j, object(), np.array(None), "\udc00", torch.eye(2).to_sparse()]), st.data())
def test_the_error_has_the_path_of_a_value_that_cannot_be_encoded(
    value: Any, culprit: Any, data: st.DataObject
) -> None:
    """Nests `culprit` in random containers with a good value: the error has its path."""
    whole, path = culprit, ""
    for _ in range(data.draw(st.integers(0, 5))):
        match data.draw(st.sampled_from(["list", "tuple", "dict"])):
            case "list":
                whole, path = [value, whole], f"[1]{path}"
            case "tuple":
                whole, path = (whole, value), f"[0]{path}"
            case _:
                whole, path = {"good": value, "bad": whole}, f"['bad']{path}"
    with pytest.raises(CodecError) as refusal:
        encode(whole)
    assert str(refusal.value).startswith(f"value{path}: ")


def survives(data: bytes) -> None:
    """Check that `data` gives a value or a CodecError, and takes memory in proportion to its length."""

    def decoded() -> None:
        try:
            decode(data)
        except CodecError as error:
            assert str(error)

    peak, _ = peak_memory(decoded)
    assert peak <= BYTES_PER_BYTE * len(data) + BYTES_BESIDES


@many
@given(st.binary(max_size=500))
def test_any_bytes_give_a_value_or_one_codec_error(data: bytes) -> None:
    survives(data)
    survives(MAGIC + data)
    survives(message(data))


@st.composite
def hostile_skeletons(draw: st.DrawFn) -> bytes:
    """Draw MessagePack tokens in any order: headers with wrong lengths, false extensions, misplaced marks."""
    size = st.sampled_from([0, 1, 2, 15, 16, 255, 2**16, 2**31, 2**32 - 1])
    dimension = st.sampled_from([0, 1, 2, 3, 2**31, 2**32, 2**62, 2**63, 2**64 - 1])
    lying_shape = st.builds(
        lambda code, dimensions: struct.pack(f"<B{len(dimensions)}Q", code, *dimensions),
        st.integers(0, 255),
        st.lists(dimension, max_size=5),
    )
    token = (
        st.sampled_from(
            [b"\x80", b"\x81", b"\x8f", b"\x90", b"\x91", b"\x93", b"\x9f", b"\xc0", b"\xc3", b"\x01", b"\xa1a"]
        )
        | st.builds(
            lambda head, n: bytes((head,)) + n.to_bytes(4, "big"), st.sampled_from(b"\xc6\xc9\xdb\xdd\xdf"), size
        )
        | st.builds(
            lambda head, n: bytes((head,)) + (n & 0xFFFF).to_bytes(2, "big"), st.sampled_from(b"\xdc\xde"), size
        )
        | st.builds(extension, st.sampled_from([ARRAY, TENSOR]), lying_shape)
        | st.builds(lambda n: extension(BLOB, struct.pack("<Q", n)), dimension)
        | st.builds(extension, st.integers(SCALAR, 12) | st.just(-1), st.binary(max_size=20))
        | st.just(extension(TUPLE, b""))
    )
    return b"".join(draw(st.lists(token, max_size=40)))


@many
@given(hostile_skeletons(), st.binary(max_size=100))
def test_hostile_skeletons_give_a_value_or_one_codec_error(skeleton: bytes, frames: bytes) -> None:
    survives(message(skeleton, bytes(-(8 + len(skeleton)) % 16) + frames))


@many
@given(values, st.data())
def test_damaged_messages_give_a_value_or_one_codec_error(value: Any, data: st.DataObject) -> None:
    body = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        match data.draw(st.sampled_from(["flip", "truncate", "insert", "remove"])):
            case "flip" if at < len(body):
                body[at] ^= data.draw(st.integers(1, 255))
            case "truncate":
                del body[at:]
            case "insert":
                body[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case "remove":
                del body[at : at + data.draw(st.integers(1, 9))]
    survives(bytes(body))


@settings(many, max_examples=60)
@given(values, st.integers(1, 20))
def test_a_message_cut_short_is_always_refused(value: Any, cut: int) -> None:
    body = encode(value)
    with pytest.raises(CodecError):
        decode(body[:-cut])


@pytest.mark.parametrize(
    "part",
    [b"\x80", b"\x90", b"\x81\x01\x80", b"\x91\x90", b"\x92\xcb" + bytes(8), extension(TUPLE, b""), b"\xd4\x01\x01"],
    ids=lambda part: part.hex(),
)
def test_the_costliest_messages_stay_within_the_bound(part: bytes) -> None:
    """Decodes thousands of empty containers, one-element dicts and arrays without elements."""
    count = 10_000
    whole = msgpack.packb([None] * count)[:3] + part * count
    survives(message(whole))
    survives(message(whole, bytes(16 * count)))
