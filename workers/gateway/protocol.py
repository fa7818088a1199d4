"""The two dialects in which a game process asks, without sockets: header fields in, a Request or a Refusal out.

Fields of the first dialect are `game_id` and `step_kind` (start, tick, end); of the second `session`, `step_kind`
(start, tick, stop, auto), and optionally `key`, `time` and `token`. Each dialect takes the other's kinds. A name may be
spelt with "-" in place of "_", which some proxies insist on. HTTP carries the fields as headers, TCP as lines of text
(tcp.py); the body is the game's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

LONGEST_FIELD = 256  # bytes of a field's value

_NAME = re.compile(rb"[\x21-\x7e]+")


class Kind(Enum):
    """Kinds of requests."""

    start = "start"
    tick = "tick"
    end = "end"  # or "stop"
    auto = "auto"  # a tick, with a start before it if the session is not open


# Either dialect's words are understood in both.
_KINDS = {
    b"start": Kind.start,
    b"tick": Kind.tick,
    b"end": Kind.end,
    b"stop": Kind.end,
    b"auto": Kind.auto,
}
_FIELDS = frozenset((b"game_id", b"session", b"step_kind", b"key", b"time", b"token"))
_ECHOED = (b"session", b"key", b"time")  # fields of the second dialect that its replies carry


class Refusal(Exception):
    """Raised when a request cannot be met: an HTTP status, and one line with the reason."""

    def __init__(self, status: int, reason: str, address: str | None = None) -> None:
        """`address`: that of the gateway that has the session, if it is another one."""
        super().__init__(reason)
        self.status, self.reason, self.address = status, " ".join(reason.split()), address

    def body(self) -> bytes:
        """Return one line of JSON."""
        return json.dumps({"status": self.status, "error": self.reason}).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Request:
    """A game's request. `key` and `time` are the game's own, and are sent back to it; `token`: None if none came."""

    session: str
    kind: Kind
    body: bytes
    key: str | None = None
    time: str | None = None
    token: bytes | None = None
    echoed: tuple[tuple[bytes, bytes], ...] = ()  # fields of the reply


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one request, before its body has come."""

    session: str
    kind: Kind
    key: str | None
    time: str | None
    token: bytes | None
    echoed: tuple[tuple[bytes, bytes], ...]

    def with_body(self, body: bytes) -> Request:
        """Return the request with this body."""
        return Request(self.session, self.kind, body, self.key, self.time, self.token, self.echoed)


def read(pairs: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Return the protocol's fields among `pairs` of (name in lower case, value). Raises Refusal 400."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        if b"-" in name:
            name = name.replace(b"-", b"_")
        if name not in _FIELDS:
            continue
        if name in found and found[name] != value:
            raise Refusal(400, f"{name.decode()}: given twice, with different values")
        if len(value) > LONGEST_FIELD:
            raise Refusal(400, f"{name.decode()}: {len(value)} bytes are too long; it may have {LONGEST_FIELD}")
        found[name] = value.strip()
    if b"game_id" in found and b"session" in found:
        raise Refusal(400, "game_id and session: both given; a request is of one dialect")
    dialect = b"game_id" if b"game_id" in found else b"session"
    session = found.get(dialect)
    if session is None:
        raise Refusal(400, "session: not given; name the game by the header session, or game_id")
    if not _NAME.fullmatch(session):
        raise Refusal(400, f"{dialect.decode()}: must be printable ASCII without blanks, and not empty")
    said = found.get(b"step_kind")
    kind = None if said is None else _KINDS.get(said)
    if kind is None:
        known = ", ".join(name.decode() for name in _KINDS)
        was = "not given" if said is None else f"{_shown(said)} is unknown"
        raise Refusal(400, f"step_kind: {was}; it is one of {known}")
    echoed: tuple[tuple[bytes, bytes], ...] = ()
    if dialect == b"session":
        echoed = tuple((name, found[name]) for name in _ECHOED if name in found and _shows(found[name]))
    return Fields(
        session.decode(), kind, _text(found.get(b"key")), _text(found.get(b"time")), found.get(b"token"), echoed
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _shows(value: bytes) -> bool:
    """Return True if a header can carry `value` back."""
    return all(32 <= byte < 127 for byte in value)


def _shown(value: bytes) -> str:
    return repr(value[:40].decode("ascii", "backslashreplace"))
