"""Tests of tasks.codec.decoder: arrays are views, and invalid bytes give one CodecError and take no memory."""

from __future__ import annotations

import datetime
import struct

import msgpack
import numpy as np
import pytest
import torch
from support.wire_values import extension, message, peak_memory, same, shape

from tasks.codec.encoder import ARRAY, BLOB, DTYPES, SCALAR, TENSOR, TUPLE
from tasks.codec.serializer import decode, encode
from warren.errors import CodecError


def test_arrays_are_read_only_aligned_views_of_the_message() -> None:
    body = encode({"odd": np.arange(7, dtype=np.uint8), "wide": np.ones(1000, np.complex128)})
    whole = np.frombuffer(body, np.uint8)
    for array in decode(body).values():
        assert np.shares_memory(array, whole)
        assert not array.flags.writeable
        assert array.flags.aligned


def test_arrays_from_a_writable_buffer_are_read_only_as_well() -> None:
    body = bytearray(encode(np.arange(5)))
    with pytest.raises(ValueError, match="read-only"):
        decode(body)[0] = 7


def test_an_unaligned_buffer_can_be_decoded() -> None:
    value = {"a": np.arange(6.0).reshape(2, 3), "b": torch.arange(3)}
    body = encode(value)
    for shift in range(1, 9):
        assert same(value, decode(memoryview(bytes(shift) + body)[shift:]))


@pytest.mark.filterwarnings("error")
def test_a_tensor_can_be_written_without_touching_the_message() -> None:
    body = encode([torch.ones(100), torch.ones(100, dtype=torch.bfloat16)])
    for tensor in decode(body):
        tensor.zero_()
    assert all(tensor.sum() == 100 for tensor in decode(body))


def test_decoding_an_array_allocates_almost_no_memory() -> None:
    body = encode({"payload": np.ones(2**20)})
    peak, _ = peak_memory(lambda: decode(body))
    assert peak < 2**14


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"WRN", b"WRN\x01", b"WRN\x01\x00\x00\x00", b"WRN\x02\x01\x00\x00\x00\xc0", b"{}", b"\x80\x04N."),
        *(message(b""), message(b"\xc0\xc0"), message(b"\xc1"), message(b"\xa1\xff"), message(b"\xc0", b"more")),
        struct.pack("<4sI", b"WRN\x01", 0xFFFFFFFF) + b"\xc0",
        message(extension(ARRAY, b"")),
        message(extension(ARRAY, shape(1, 5)), bytes(3)),
        message(extension(ARRAY, shape(1, 2**63)), bytes(16)),
        message(extension(ARRAY, shape(1, 2**63, 2**63)), bytes(16)),
        message(extension(ARRAY, shape(1, 0, 2**63, 2**63)), bytes(16)),
        message(extension(ARRAY, shape(60, 1)), bytes(16)),
        message(extension(ARRAY, shape(0x40, 1)), bytes(16)),
        message(extension(ARRAY, shape(1, *[1] * 65)), bytes(16)),
        message(extension(ARRAY, shape(1, 2) + b"x"), bytes(16)),
        message(extension(TENSOR, shape(DTYPES.index(np.dtype(">f4")), 1)), bytes(16)),
        message(extension(TENSOR, shape(0x40, 2**40)), bytes(16)),
        message(extension(BLOB, struct.pack("<Q", 2**62)), bytes(16)),
        message(extension(BLOB, b"")),
        message(extension(SCALAR, b"\x03\x00")),
        message(extension(SCALAR, b"\x01\x00\x00")),
        message(extension(SCALAR, b"")),
        message(b"\x91" + extension(TUPLE, b"x")),
        message(extension(TUPLE, b"")),
        message(b"\x92\x01" + extension(TUPLE, b"")),
        message(b"\x92" + extension(TUPLE, b"") * 2),
        message(b"\x81\x01" + extension(TUPLE, b"")),
        message(b"\x81\x90\x01"),
        message(b"\x81\x80\x01"),
        *(message(extension(code, b"nonsense")) for code in (7, 8, 9, 10, 99)),
        message(extension(-1, b"12 bytes or so")),
        message(extension(-1, b"\xff" * 12)),
        message(b"\xdd\xff\xff\xff\xff"),
        message(b"\xdf\xff\xff\xff\xff"),
        message(b"\xdb\xff\xff\xff\xff"),
        message(b"\xc9\xff\xff\xff\xff\x01"),
        message(b"\x91" * 100_000),
        message(b"\x81\x01" * 100_000),
    ],
    ids=lambda data: f"{data[:40]!a}",
)
def test_invalid_bytes_give_one_codec_error(data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        with pytest.raises(CodecError):
            decode(buffer)


def test_a_missing_frame_is_named_in_the_error() -> None:
    body = encode([np.zeros(20), torch.zeros(20)])
    with pytest.raises(CodecError, match=r"frame 2 \(of at most 65536\) ends at byte 288 of 250; was it cut short"):
        decode(body[:250])


def test_timestamps_of_other_programs_come_as_datetimes() -> None:
    assert decode(message(msgpack.packb(msgpack.Timestamp(86400)))) == datetime.datetime(
        1970, 1, 2, tzinfo=datetime.UTC
    )


def test_another_version_is_named_in_the_error() -> None:
    with pytest.raises(CodecError, match=r"begins with b'WRN\\x01', this one with b'WRN\\x02'; .*version"):
        decode(b"WRN\x02" + encode(1)[4:])


@pytest.mark.parametrize(
    "claim",
    [b"\xdd\x00\x0f\x00\x00", b"\xdc\xff\xff", b"\x81\x01\xdd\x00\x0f\x00\x00", b"\x9f", b"\xdf\x00\x07\x00\x00"],
    ids=lambda claim: claim.hex(),
)
@pytest.mark.parametrize("levels", [1, 2, 63, 1000])
def test_claimed_lengths_take_no_memory(claim: bytes, levels: int) -> None:
    """Each list claims a million elements, the first of which is such a list: unpackb would allocate them all."""
    skeleton = claim * levels + b"\xdb\x00\x10\x00\x00" + b"a" * 2**20
    body = message(skeleton)

    def refused() -> None:
        with pytest.raises(CodecError):
            decode(body)

    peak, _ = peak_memory(refused)
    assert peak < 16 * len(body)
