"""The stub of a claim: what a message carries in the place of a long body that waits elsewhere (see claim_check.py)."""

from __future__ import annotations

from contextlib import suppress

import msgpack

from tasks.codec.shared_memory import SharedFolder
from warren.errors import CodecError

_MAGIC = b"WRC\x01"
_LONGEST = 1024  # bytes of a stub; a longer one is not read
_SHARED = "shared."  # begins keys of bodies in shared memory, after the prefix: shared.FOLDER.NAME


def make(key: str, size: int, checksum: int) -> bytes:
    """Return the stub of a body of `size` bytes and that CRC-32."""
    stub: bytes = _MAGIC + msgpack.packb((key, size, checksum))
    return stub


def read(stub: bytes | bytearray | memoryview) -> tuple[str, int, int]:
    """Read a stub: key, size in bytes and CRC-32 of its body. Raises CodecError."""
    if is_stub(stub) and len(stub) <= _LONGEST:
        try:
            match msgpack.unpackb(stub[len(_MAGIC) :]):
                case [str(key), int(size), int(checksum)]:
                    return key, size, checksum
        except (ValueError, TypeError):  # msgpack's own refusals, bad UTF-8 among them
            pass
    raise CodecError(f"these {len(stub)} bytes are not a claim check: {bytes(stub[:64])!r}; were they cut short?")


def is_stub(data: bytes | bytearray | memoryview) -> bool:
    """Return whether `data` is the stub of a claim."""
    return data[: len(_MAGIC)] == _MAGIC


def size_of(body: bytes | bytearray | memoryview) -> int:
    """Return the size in bytes of a message's body, which may wait elsewhere."""
    if is_stub(body):
        with suppress(CodecError):
            return read(body)[1]
    return len(body)


def shared_key(folder: SharedFolder, name: str) -> str:
    """Return the key, without its prefix, of a body in shared memory."""
    return f"{_SHARED}{folder.token}.{name}"


def in_shared_memory(rest: str) -> tuple[SharedFolder, str] | None:
    """Return (folder, name) of a key without its prefix; None for one of Redis. Raises ClaimError if malformed."""
    if not rest.startswith(_SHARED):
        return None
    token, _, name = rest.removeprefix(_SHARED).partition(".")
    return SharedFolder(token), name
