"""Messages that no client of Warren sends: those that once did harm, and random ones from a seed.

Only py-amqp publishes them, without a sender's checks.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import amqp
from amqp.exceptions import MessageNacked, NotFound
from kombu import Connection

from tasks import codec
from tasks.amqp.messages import NO_LINKS

WARREN = codec.CONTENT_TYPE
GOOD = codec.encode((("x",), {}, NO_LINKS))


@dataclass(frozen=True)
class Hostile:
    """One message; `properties` holds `headers` under py-amqp's name for them."""

    body: bytes = GOOD
    headers: dict[str, Any] = field(default_factory=dict)
    content_type: str = WARREN
    reply_to: str | None = None

    @property
    def properties(self) -> dict[str, Any]:
        """Return the properties for amqp.Message."""
        known = {"application_headers": self.headers, "correlation_id": "hostile", "content_encoding": "binary"}
        known |= {"content_type": self.content_type} if self.content_type else {}
        return known | ({"reply_to": self.reply_to} if self.reply_to is not None else {})


def known(task: str) -> list[Hostile]:
    """Return messages for `task` that once killed a worker or were redelivered endlessly."""
    headers = {"task": task, "id": "hostile", "lang": "py"}
    bodies = [b"", b"5", b"[]", b"null", b"{", codec.encode(5), codec.encode(((1,), {})), codec.encode((5, [], "x"))]
    found = [Hostile(body, headers, kind) for body in bodies for kind in (WARREN, "application/json", "")]
    found += [Hostile(GOOD, {**headers, "expires": value}) for value in (5, 1.5, [1], {"a": 1}, "soon", True)]
    found += [Hostile(GOOD, {"task": task}, reply_to=to) for to in (None, "somewhere", "amq.rabbitmq.reply-to.x")]
    found += [Hostile(codec.encode((("x",), {}, embed)), headers) for embed in ([1], "links", 7, {"chord": 7})]
    found += [
        Hostile(json.dumps({"task": task, "id": "x", "args": [1], "kwargs": {}}).encode(), {}, "application/json")
    ]
    found += [Hostile(GOOD, {**headers, "id": value}) for value in (None, 5, ["x"], "")]
    found += [Hostile(b"WRC\x01garbage", headers), Hostile(GOOD[:-3], headers), Hostile(b"cos\nsystem\n.", headers)]
    return found


def at_random(rng: random.Random, task: str) -> Hostile:
    """Return a random message for `task`."""
    headers = {"task": task, "id": f"random-{rng.randrange(1 << 30)}", "lang": "py"}
    names = (
        "id task expires eta retries group root_id timelimit ignore_result compression stamped_headers stamps shadow"
    )
    names += " origin from event part parts clock redelivered"
    for name in rng.sample(names.split(), rng.randrange(4)):
        headers[name] = _value(rng, 2)
    for name in rng.sample(sorted(headers), rng.randrange(2)):
        del headers[name]
    if rng.random() < 0.1:
        headers = {}
    kind = rng.choice([WARREN, WARREN, "application/json", "application/x-python-serialize", "text/plain", ""])
    reply_to = rng.choice([None, None, "nowhere", "", "amq.rabbitmq.reply-to.g1h", "amq.rabbitmq.reply-to.", "x" * 255])
    return Hostile(_body(rng), headers, kind, reply_to)


def _body(rng: random.Random) -> bytes:
    form = rng.randrange(6)
    if form == 0:
        return rng.randbytes(rng.choice([0, 1, 4, 100, 5000]))
    if form == 1:
        return json.dumps(_plain(rng, 3)).encode()
    if form == 2:
        return codec.encode(_plain(rng, 3))
    if form == 3:
        return codec.encode(tuple(_plain(rng, 2) for _ in range(rng.choice([1, 2, 3, 3, 3, 4]))))
    if form == 4:
        data = bytearray(GOOD)
        data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    return GOOD[: rng.randrange(len(GOOD))]


def _value(rng: random.Random, depth: int) -> Any:
    """Return a random value that AMQP's tables can hold."""
    odd = [datetime(2026, 1, 1), Decimal("1.5"), b"\xff\x00"]
    return rng.choice(odd) if rng.random() < 0.1 else _plain(rng, depth)


def _plain(rng: random.Random, depth: int) -> Any:
    if depth and rng.random() < 0.4:
        if rng.random() < 0.5:
            return [_plain(rng, depth - 1) for _ in range(rng.randrange(3))]
        return {rng.choice(["a", "task", "id", "chord", ""]): _plain(rng, depth - 1) for _ in range(rng.randrange(3))}
    texts = ["", "x", "deny", "2026-01-01T00:00:00", "9" * 40, "\u2603"]
    return rng.choice([None, True, False, 0, -1, 7, 1 << 40, 0.5, -1e300, *texts])


class Publisher:
    """A raw client of the broker at `url`."""

    def __init__(self, url: str) -> None:
        self._parameters = Connection(url)
        self._connection: Any = None

    def __enter__(self) -> Publisher:
        at = self._parameters
        self._connection = amqp.Connection(
            f"{at.hostname}:{at.port}", at.userid, at.password, virtual_host=at.virtual_host
        )
        self._connection.connect()
        self._channel = self._connection.channel()
        self._channel.confirm_select()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def knows(self, exchange: str) -> bool:
        """Return whether the broker has an exchange of that name."""
        channel = self._connection.channel()  # the broker closes it if there is none
        try:
            channel.exchange_declare(exchange, "", passive=True)
        except NotFound:
            return False
        channel.close()
        return True

    def send(self, exchange: str, key: str, messages: Iterable[Hostile]) -> int:
        """Publish the messages with confirms; return how many the broker accepted: a full queue refuses some."""
        number = 0
        for message in messages:
            with contextlib.suppress(MessageNacked):
                self._channel.basic_publish_confirm(amqp.Message(message.body, **message.properties), exchange, key)
                number += 1
        return number


def mixture(seed: int, number: int, targets: list[tuple[str, str, str]]) -> Iterator[tuple[str, str, Hostile]]:
    """Yield `number` random messages, each with the exchange and key of one of `targets` (exchange, key, task)."""
    rng = random.Random(seed)
    for _ in range(number):
        exchange, key, task = rng.choice(targets)
        yield exchange, key, at_random(rng, task)
