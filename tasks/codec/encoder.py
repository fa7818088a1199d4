"""The format's tables, and the encoding of values into messages. `decoder` is its mirror; see serializer.py."""

from __future__ import annotations

import datetime
import inspect
import struct
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
from msgpack import ExtType

from warren.errors import CodecError

MAX_DEPTH = 64  # containers within containers, counted alike on both sides
MAX_FRAMES = 1 << 16  # arrays, tensors and long byte strings in one message
BLOB_BYTES = 4096  # byte strings from here on travel as frames: written once, where MessagePack would copy thrice

MAGIC = b"WRN\x01"  # the last byte is the version of the format
HEADER = struct.Struct("<4sI")
ALIGNMENT = 16  # CPython's alignment of a bytes object's data; a wider one would not survive reception

# Extension codes, and dtype codes by position: both are the format, so append, never reorder.
ARRAY, TENSOR, BLOB, TUPLE, SCALAR, INT, DATETIME, TIMEDELTA, UUID = range(1, 10)
_NUMBERS = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
DTYPES = tuple(np.dtype(name) for name in ("?", "i1", "u1", *(order + name for name in _NUMBERS for order in "<>")))
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
FORTRAN = 0x80  # flag on an array's dtype code
BFLOAT16 = 0x40  # a tensor's dtype code; NumPy lacks it, so its bits travel as int16
SHAPES = tuple(struct.Struct(f"<B{ndim}Q") for ndim in range(65))  # dtype code, shape; 64 is NumPy's own limit
LENGTH = struct.Struct("<Q")
DURATION = struct.Struct("<iii")  # days, seconds, microseconds, as timedelta keeps them

Frame = npt.NDArray[Any] | memoryview

_TUPLE_MARK = ExtType(TUPLE, b"")  # first element of a tuple, which MessagePack can only write as an array
_ATOMS = frozenset({str, int, float, bool, type(None)})  # types that MessagePack writes unchanged
_KEYS = (str, int, float, bytes, type(None), np.generic, datetime.datetime, datetime.timedelta, uuid.UUID)
_BASES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (dict, dict),  # Celery's signatures are dicts
    (list, list),
    (tuple, tuple),
    (str, str.__str__),  # not str(), which asks an enumeration's own __str__ and gets the name of its member
    (bytes, bytes),
    (int, int.__int__),
    (float, float.__float__),
)
_PADDING = tuple(bytes(n) for n in range(ALIGNMENT))


class _Refused(Exception):
    """A value is outside the format; the message says why, and `_locate` finds out where."""


def pack(value: Any) -> bytes:
    """Encode `value` as one message, never as a claim check: for bytes that are kept for longer than a claim.

    Raises CodecError, naming the path of the field, for a value outside the format.
    """
    frames: list[Frame] = []
    try:
        skeleton = _pack(_node(value, 1, frames))
    except (_Refused, ValueError) as refusal:
        raise CodecError(_locate(value, refusal)) from None
    if len(frames) > MAX_FRAMES or len(skeleton) > 0xFFFFFFFF:
        raise CodecError(
            f"a message of {len(frames)} arrays and {len(skeleton)} bytes besides them is too long "
            f"(limits {MAX_FRAMES} and {0xFFFFFFFF}); stack the arrays or send several messages"
        )
    parts: list[Any] = [HEADER.pack(MAGIC, len(skeleton)), skeleton]
    end = HEADER.size + len(skeleton)
    for frame in frames:
        padding = -end % ALIGNMENT
        parts += (_PADDING[padding], frame)
        end += padding + frame.nbytes
    return b"".join(parts)


def _pack(tree: Any) -> bytes:
    packed: bytes = msgpack.Packer(default=_long_int).pack(tree)
    return packed


def _node(value: Any, depth: int, frames: list[Frame]) -> Any:
    """Turn `value` into MessagePack's types and extensions; add what follows the skeleton to `frames`."""
    kind = type(value)
    if kind is dict:
        _check_depth(depth)
        node = {
            k if type(k) is str else _key(k, depth): v if type(v) in _ATOMS else _node(v, depth + 1, frames)
            for k, v in value.items()
        }
        if len(node) != len(value):
            raise _Refused("two keys of a dict have the same encoded form; use plain strings or ints")
        return node
    if kind is list:
        _check_depth(depth)
        return _items(value, depth, frames)
    if kind is tuple:
        _check_depth(depth)
        return (_TUPLE_MARK, *_items(value, depth, frames))
    if kind is np.ndarray:
        return _array(ARRAY, value, frames)
    if kind in _ATOMS:
        return value
    if kind is bytes or kind is bytearray or kind is memoryview:
        return _bytes(value, frames)
    return _encode_rare(value, depth, frames)


def _items(items: Sequence[Any], depth: int, frames: list[Frame]) -> Sequence[Any]:
    if _ATOMS.issuperset(map(type, items)):
        return items
    return [v if type(v) in _ATOMS else _node(v, depth + 1, frames) for v in items]


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Refused(f"containers nest deeper than {MAX_DEPTH}; flatten them, or does one hold itself?")


def _key(key: Any, depth: int) -> Any:
    if isinstance(key, bytes):
        return bytes(key)  # never a frame: only its length would stand here, and keys may have the same
    if isinstance(key, tuple):
        _check_depth(depth + 1)
        return (_TUPLE_MARK, *[_key(part, depth + 1) for part in key])
    if not isinstance(key, _KEYS):
        raise _Refused(f"cannot encode the key {key!r:.80} of {type(key)}; use a str, an int or a tuple of them")
    return _node(key, depth, [])


def _array(code: int, array: npt.NDArray[Any], frames: list[Frame], dtype_code: int | None = None) -> ExtType:
    """Make the extension for `array`; `dtype_code` where it differs from that of the array's own dtype."""
    if dtype_code is None:
        dtype_code = DTYPE_CODES.get(array.dtype)
        if dtype_code is None:
            raise _Refused(f"cannot encode an array of dtype {array.dtype}; convert it to numbers with .astype(...)")
    shape = array.shape
    if not array.flags.c_contiguous:
        if array.flags.f_contiguous and code == ARRAY:
            array, dtype_code = array.T, dtype_code | FORTRAN
        else:
            array = np.ascontiguousarray(array)  # strided memory has to be gathered first; the one case of two copies
    if array.size:
        frames.append(array)
    return _extension(code, SHAPES[len(shape)].pack(dtype_code, *shape))


def _extension(code: int, payload: bytes) -> ExtType:
    return tuple.__new__(ExtType, (code, payload))  # ExtType's own __new__ checks both again, at three times the cost


def _bytes(value: bytes | bytearray | memoryview, frames: list[Frame]) -> bytes | ExtType:
    if type(value) is bytes and len(value) < BLOB_BYTES:
        return value
    view = memoryview(value)
    if view.nbytes < BLOB_BYTES:
        return view.tobytes()
    frames.append(view if view.c_contiguous else memoryview(view.tobytes()))
    return _extension(BLOB, LENGTH.pack(view.nbytes))


def _encode_rare(value: Any, depth: int, frames: list[Frame]) -> Any:
    """Encode what `_node` does not know by its exact type: tensors, scalars, dates, subclasses of known types."""
    kind = type(value)
    torch = sys.modules.get("torch")  # a process that never imported torch holds no tensor, and need not load it
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return _tensor(torch, value, frames)
    if isinstance(value, np.generic) and (dtype_code := DTYPE_CODES.get(value.dtype)) is not None:
        return _extension(SCALAR, bytes((dtype_code,)) + value.tobytes())
    if kind is datetime.datetime:
        return _extension(DATETIME, value.isoformat().encode("ascii"))
    if kind is datetime.timedelta:
        return _extension(TIMEDELTA, DURATION.pack(value.days, value.seconds, value.microseconds))
    if kind is uuid.UUID:
        return _extension(UUID, value.bytes)
    if kind is np.memmap:
        return _array(ARRAY, np.asarray(value), frames)
    if not hasattr(value, "_fields"):  # a named tuple would come back without its names
        for base, plain in _BASES:
            if isinstance(value, base):
                return _node(plain(value), depth, frames)
    raise _Refused(f"cannot encode {kind}; {_remedy(value)}")


def _tensor(torch: Any, tensor: Any, frames: list[Frame]) -> ExtType:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise _Refused(f"cannot encode {type(tensor)}; send a plain tensor")
    try:
        if tensor.dtype is torch.bfloat16:
            return _array(TENSOR, tensor.detach().view(torch.int16).numpy(force=True), frames, BFLOAT16)
        return _array(TENSOR, tensor.numpy(force=True), frames)  # forced: detached, on the CPU, conjugation resolved
    except (TypeError, RuntimeError):
        raise _Refused(
            f"cannot encode a {tensor.layout} tensor of {tensor.dtype} on {tensor.device}; "
            "send a dense one that holds data, of a dtype that NumPy has or bfloat16"
        ) from None


def _long_int(value: Any) -> ExtType:
    """Encode an int of more than 64 bits: the only value that MessagePack cannot write after `_node`."""
    return _extension(INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _remedy(value: Any) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return "send dataclasses.asdict(...) of it"
    if hasattr(value, "_fields"):
        return "send its _asdict(), or tuple(...) of it"
    if isinstance(value, (set, frozenset)):
        return "send a sorted list"
    if inspect.isawaitable(value):
        return "await it: a function that returns one, as a wrapper of an `async def`, has to be `async def` itself"
    if isinstance(value, np.ndarray):
        return "send np.asarray(...) of it, and what that drops besides"
    return "send arrays, tensors, dicts, lists, tuples, strings and numbers"


def _locate(value: Any, refusal: Exception) -> str:
    """Return the path of the field that was refused, and why. Runs only after a failure, so it may pack again."""
    path, fields = "value", list(_fields(value))
    if type(value) is tuple and len(value) == 3 and isinstance(value[2], dict) and "chord" in value[2]:
        path, fields = "", list(zip(("args", "kwargs", "embed"), value, strict=True))  # the body of a Celery task
    for depth in range(2, MAX_DEPTH + 2):  # no further: a container that holds itself is refused at every depth
        for name, part in fields:
            try:
                _pack(_node(part, depth, []))
            except (_Refused, ValueError) as inner:
                path, value, refusal = path + name, part, inner
                break
        else:
            break
        fields = list(_fields(value))
    if isinstance(refusal, UnicodeEncodeError):
        refusal = _Refused(f"{value!a:.80} holds half a surrogate pair, which is not text; send it as bytes")
    if len(path) > 200:
        path = f"{path[:100]}...{path[-100:]}"
    return f"{path}: {refusal}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r:.80}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
