"""A call is answered in the format that it came in: JSON for clients that know Celery alone, else the wire format.

While a worker does the bookkeeping of a call (`answering`), it writes in the call's format, at other times in the app's
own. This holds for all that it stores (results, parts of chords) and publishes (callbacks, the rest of a chain, the
body of a chord).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kombu import serialization
from kombu.exceptions import EncodeError

from tasks import codec
from tasks.app.outcome import kind_of
from warren.errors import CodecError

JSON, JSON_TYPE = "json", "application/json"

_books = threading.local()


@contextmanager
def answering(content_type: str) -> Iterator[None]:
    """Write JSON within this block, unless the call's content type is that of the wire format."""
    before = getattr(_books, "of", None)
    _books.of = content_type
    try:
        yield
    finally:
        _books.of = before


def keeps_books() -> bool:
    """Return True while this thread does the bookkeeping of a call."""
    return getattr(_books, "of", None) is not None


def answers_json() -> bool:
    """Return True while this thread does the bookkeeping of a call that came as JSON."""
    return getattr(_books, "of", None) not in (None, codec.CONTENT_TYPE)


def read_body(content_type: str, body: bytes) -> Any:
    """Return what the body of a message holds. Raises CodecError, and what codec.decode raises."""
    if content_type == JSON_TYPE:
        try:
            return serialization.loads(body, JSON_TYPE, "utf-8")
        except Exception as error:  # many kinds: not UTF-8, not JSON, an impossible date, too deep
            raise CodecError(f"its body is not JSON: {error}") from error
    try:
        return codec.decode(body)
    except CodecError as error:
        if content_type in (codec.CONTENT_TYPE, ""):
            raise
        raise CodecError(
            f"its content type is {content_type!r:.60}, and services read {JSON_TYPE} and {codec.CONTENT_TYPE}"
        ) from error


def store_in_kind(backend: Any) -> None:
    """Make a result backend store JSON where `answers_json`."""
    encode_own = backend.encode

    def encode(data: Any) -> Any:
        return write_json(data) if answers_json() else encode_own(data)

    backend.encode = encode


def write_json(data: Any) -> str:
    """Return `data` as JSON. Raises EncodeError, naming the path of what JSON cannot hold."""
    try:
        text: str = serialization.dumps(data, serializer=JSON)[2]
    except EncodeError:
        raise unfit(data) from None
    return text


def unfit(data: Any) -> EncodeError:
    """Return the error for `data` that JSON cannot hold."""
    found = next(_unfit(data, ""), None) or "it"
    return EncodeError(
        f"this call came as JSON, which cannot hold its result: {found}; let the service return lists, numbers, texts "
        "and dicts (array.tolist()), or call it with the serializer of tasks.codec"
    )


def _unfit(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of what JSON cannot hold in `value`."""
    try:
        serialization.dumps(value, serializer=JSON)
        return
    except EncodeError:
        pass
    if isinstance(value, Mapping):
        parts = [(part, path if not path and key == "result" else f"{path}[{key!r}]") for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(part, f"{path}[{index}]") for index, part in enumerate(value)]
    else:
        yield f"{path or 'it'} is of type {kind_of(value)}"
        return
    for part, inner in parts:
        yield from _unfit(part, inner)
