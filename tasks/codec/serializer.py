"""The wire format, and kombu's serializer "warren". Nothing that arrives is ever unpickled or executed.

    magic "WRN" and version    4 bytes
    skeleton length            uint32, little-endian
    skeleton                   MessagePack; an array is an extension that holds its dtype and shape only
    frames                     the bytes of those arrays, in the order of their extensions, each begun on 16 bytes

Dicts, lists and tuples come back as themselves, NumPy arrays and scalars with their dtype, byte order and C or Fortran
order, tensors detached and on the CPU. So do str, bytes, None, bool, int of any size, float, timedeltas, UUIDs and
datetimes; an aware datetime has its offset in place of its zone. Subclasses of dict, list, tuple, str, bytes, int and
float come back as their base. All else is refused.

Decoded NumPy arrays are read-only views of the message, which they keep alive: copy what you mean to keep or to write.
Decoded tensors are copies, because a tensor cannot be read-only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kombu import serialization

from tasks.codec import claim_check, claim_stub
from tasks.codec.claim_check import ClaimStore
from tasks.codec.decoder import unpack
from tasks.codec.encoder import pack

NAME = "warren"  # the format's name in task_serializer and accept_content
STORED = "warren-stored"  # for results, which lie in Redis themselves: never a claim check; JSON is read as well
CONTENT_TYPE = "application/x-warren"
STORED_TYPE = "application/x-warren-stored"


def encode(value: Any, claims: ClaimStore | None = None) -> bytes:
    """Encode `value` as one message, or as a claim check where that is over the threshold of `claims`.

    Raises CodecError, naming the path of the field, for a value outside the format; and as ClaimStore.check_in does.
    """
    return pack(value) if claims is None else claims.check_in(pack(value))


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Decode a message, whose body is fetched first where the message is a claim check.

    Raises CodecError, and nothing else, for bytes that `encode` did not write; and as ClaimStore.redeem does. Takes
    memory in proportion to `data`, whatever lengths `data` claims, and reads nothing outside it.
    """
    return unpack(claim_check.redeem(data) if claim_stub.is_stub(data) else data)


def decode_stored(data: bytes | bytearray | memoryview) -> Any:
    """Return a stored result: what `decode` returns, or JSON, which is stored for clients that know Celery alone."""
    if bytes(data[:1]) in (b"{", b"["):
        return serialization.loads(bytes(data), "application/json", "utf-8")
    return decode(data)


def register(claims: ClaimStore | None = None) -> str:
    """Make the format known to kombu, and so to Celery, as the serializers NAME and STORED. Repeating it is harmless.

    Returns the name of the serializer that checks long values in with `claims`: one per store, since a process may
    belong to several runs; all of them read messages alike. kombu wraps what encode and decode raise: the CodecError
    is `args[0]` of its EncodeError or DecodeError.
    """
    name = NAME if claims is None else f"{NAME}:{claims.prefix}"
    serialization.register(STORED, pack, decode_stored, content_type=STORED_TYPE, content_encoding="binary")
    for known, write in ((NAME, pack), (name, partial(encode, claims=claims))):
        serialization.register(known, write, decode, content_type=CONTENT_TYPE, content_encoding="binary")
    return name
