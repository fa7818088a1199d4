"""Decoding of messages: any bytes give a value or CodecError, and take memory in proportion to the message."""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from tasks.codec.encoder import (
    ALIGNMENT,
    ARRAY,
    BFLOAT16,
    BLOB,
    DATETIME,
    DTYPE_CODES,
    DTYPES,
    DURATION,
    FORTRAN,
    HEADER,
    INT,
    LENGTH,
    MAGIC,
    MAX_DEPTH,
    MAX_FRAMES,
    SCALAR,
    SHAPES,
    TENSOR,
    TIMEDELTA,
    TUPLE,
    UUID,
)
from warren.errors import CodecError

_FOREIGN = "was it cut short, or sent by another program or version?"
_OTHER_VERSION = "it is of another version of the format: run all processes by one release of Warren"
_MARKED = object()  # the decoded mark of a tuple
_CONTAINERS = frozenset({dict, list, tuple})
_NOT_OPENERS = bytes(byte for byte in range(256) if not (0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF))
_SHAPES = {shape.size: shape for shape in SHAPES}
_INT16 = bytes((DTYPE_CODES[np.dtype(np.int16)],))


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """Decode a message. Raises CodecError, and no other exception, for anything but one whole message."""
    try:
        return _unpack(data if type(data) is bytes else memoryview(data).toreadonly().cast("B"))
    except CodecError:
        raise
    except Exception as error:  # msgpack, NumPy, torch and datetime refuse bad bytes in several ways each
        raise CodecError(f"no readable message: {type(error).__name__}: {str(error)[:200]}; {_FOREIGN}") from error


def _unpack(data: bytes | memoryview) -> Any:
    if data[:4] != MAGIC:
        why = _OTHER_VERSION if len(data) > 3 and data[:3] == MAGIC[:3] else _FOREIGN
        raise CodecError(f"a message begins with {MAGIC!r}, this one with {bytes(data[:4])!r}; {why}")
    _, length = HEADER.unpack_from(data)
    end = HEADER.size + length
    if end > len(data):
        raise CodecError(f"a message of {len(data)} bytes claims to have {end} or more; {_FOREIGN}")
    skeleton = bytes(data[HEADER.size : end])
    # Nesting deeper than MAX_DEPTH takes as many bytes that could open a container; most messages have fewer.
    openers = skeleton.translate(None, _NOT_OPENERS)
    suspicious = len(openers) > MAX_DEPTH
    if suspicious or openers.count(b"\xdc") + openers.count(b"\xdd") > 1:
        _check_lengths(skeleton)
    frames = _Frames(data, end)
    value = msgpack.unpackb(
        skeleton, ext_hook=frames.extension, list_hook=frames.sequence, strict_map_key=False, timestamp=3
    )
    if suspicious:
        _check_depth(value)
    if frames.marks:
        raise CodecError(f"the mark of a tuple stands where no tuple begins; {_FOREIGN}")
    if frames.end != len(data):
        raise CodecError(f"a message of {len(data)} bytes accounts for {frames.end} of them; {_FOREIGN}")
    return value


def _check_lengths(skeleton: bytes) -> None:
    """Read over the skeleton before it is built: unpackb allocates what lists claim to hold, up to a thousand deep."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(skeleton))
    unpacker.feed(skeleton)
    unpacker.skip()


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for container in level for part in _parts(container)]
        if not level:
            return
    raise CodecError(f"containers nest deeper than {MAX_DEPTH}; {_FOREIGN}")


def _parts(container: Any) -> Iterator[Any]:
    """Yield the containers directly within `container`."""
    if type(container) is dict:
        yield from (key for key in container if type(key) is tuple)
        container = container.values()
    elif type(container) not in _CONTAINERS:
        return
    if not _CONTAINERS.isdisjoint(map(type, container)):
        yield from (part for part in container if type(part) in _CONTAINERS)


class _Frames:
    """Makes the values of one message's extensions and tuples; `end` is where the bytes handed out so far end."""

    __slots__ = ("count", "data", "end", "marks")

    def __init__(self, data: bytes | memoryview, end: int) -> None:
        self.data, self.end = data, end
        self.count = 0
        self.marks = 0  # marks of tuples seen, less tuples made

    def extension(self, code: int, payload: bytes) -> Any:
        if code == ARRAY:
            return self._array(payload)
        if code == TUPLE and not payload:
            self.marks += 1
            return _MARKED
        if code == BLOB:
            (length,) = LENGTH.unpack(payload)
            start = self._take(length)
            return bytes(self.data[start : start + length])
        if code == TENSOR:
            return self._tensor(payload)
        if code == SCALAR:
            dtype = DTYPES[payload[0]]
            if len(payload) != 1 + dtype.itemsize:
                raise CodecError(f"a scalar of dtype {dtype} has {len(payload) - 1} bytes; {_FOREIGN}")
            return np.frombuffer(payload, dtype, 1, 1)[0]
        if code == INT:
            return int.from_bytes(payload, "little", signed=True)
        if code == DATETIME:
            return datetime.datetime.fromisoformat(payload.decode("ascii"))
        if code == TIMEDELTA:
            days, seconds, microseconds = DURATION.unpack(payload)
            return datetime.timedelta(days, seconds, microseconds)
        if code == UUID:
            return uuid.UUID(bytes=payload)
        raise CodecError(f"the message holds an unknown extension {code}; {_FOREIGN}")

    def sequence(self, items: list[Any]) -> list[Any] | tuple[Any, ...]:
        if items and items[0] is _MARKED:
            self.marks -= 1
            del items[0]
            return tuple(items)
        return items

    def _array(self, payload: bytes) -> npt.NDArray[Any]:
        head = _SHAPES[len(payload)].unpack(payload)
        code, shape = head[0], head[1:]
        dtype = DTYPES[code & ~FORTRAN]
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return np.empty(shape, dtype)
        if code & FORTRAN:
            return np.ndarray(shape, dtype, self.data, self._take(size), order="F")
        return np.ndarray(shape, dtype, self.data, self._take(size))

    def _tensor(self, payload: bytes) -> Any:
        import torch  # here, because a process that no tensor reaches need not load it

        if payload[0] == BFLOAT16:
            return torch.from_numpy(self._array(_INT16 + payload[1:]).copy()).view(torch.bfloat16)
        return torch.from_numpy(self._array(payload).copy())

    def _take(self, size: int) -> int:
        """Return where the next frame, of `size` bytes, starts. Raises CodecError beyond the message's end."""
        start = self.end + -self.end % ALIGNMENT
        self.end = start + size
        self.count += 1
        if self.end > len(self.data) or self.count > MAX_FRAMES:
            raise CodecError(
                f"frame {self.count} (of at most {MAX_FRAMES}) ends at byte {self.end} of {len(self.data)}; {_FOREIGN}"
            )
        return start
