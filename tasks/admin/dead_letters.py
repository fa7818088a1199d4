"""Dead letters of a run, one by one, on brokers that keep them: to look at, send again, or drop.

Each is received without being acknowledged, and goes back when the connection closes. A letter that is sent again is
acknowledged once the broker has confirmed its copy; a process that is killed in between leaves both.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import amqp
import redis

from tasks import brokers, codec
from tasks.admin.registry import Directory
from tasks.app.dead_letters import CONFIRMED_WITHIN, DIED, REASON
from tasks.app.formats import JSON_TYPE, read_body, write_json
from tasks.app.protocol import is_moment, seconds_until
from tasks.codec import claim_check, claim_stub
from tasks.topology import ROLE_TASKS, ROLES, Topology
from warren.errors import BrokerError, ConfigurationError

# Headers added by the broker, or by the worker that gave the message up.
_ADDED = (REASON, DIED, "x-delivery-count", "x-acquired-count")
_ADDED_BEGINNINGS = ("x-death", "x-first-death-", "x-last-death-")


class DeadLetter:
    """One dead letter, held unacknowledged. `service`: its task, or its key. `died_at`: Unix time or None."""

    def __init__(self, message: amqp.Message, topology: Topology) -> None:
        self.message = message
        self.headers: dict[str, Any] = dict(message.headers or {})
        self.body: bytes = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        deaths = self.headers.get("x-death")
        death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
        self.exchange = _exchange_of(topology, str(death.get("exchange")), self.headers.get("task"), message)
        self.key = topology.key_of(str(message.delivery_info.get("routing_key") or ""))
        task, given = self.headers.get("task"), self.headers.get("id")
        self.service = task if isinstance(task, str) else self.key
        self.id = given if isinstance(given, str) and given else f"no-id-{hashlib.sha256(self.body).hexdigest()[:12]}"
        self.reason = str(self.headers.get(REASON) or _reason_of(death))
        self.died_at = _died_at(self.headers.get(DIED), death.get("time"))
        self.times = death.get("count") if isinstance(death.get("count"), int) else 1

    @property
    def size(self) -> int:
        """Return the length of its body in bytes, also where a claim check stands for it."""
        return claim_stub.size_of(self.body)

    def read(self) -> Any:
        """Decode the body: (args, kwargs, embed) of a task. Raises CodecError, ClaimError, BrokerError."""
        return read_body(self.message.properties.get("content_type") or "", self.body)

    def as_dict(self) -> dict[str, Any]:
        """Return id, service, reason, time and size, without the body."""
        return {
            "id": self.id,
            "service": self.service,
            "reason": self.reason,
            "died_at": self.died_at,
            "bytes": self.size,
            "long": claim_stub.is_stub(self.body),
        }


class DeadLetters:
    """The dead letters of a run; a context manager that puts back all that were neither sent nor dropped.

    Raises ConfigurationError on a broker that keeps none, BrokerError where it is away.
    """

    def __init__(self, app: Any, topology: Topology) -> None:
        if not brokers.of(app).dead_letters:
            raise ConfigurationError(NONE_KEPT)
        self._app, self._topology = app, topology
        self._counts = app.warren_deliveries
        self._returned: list[Any] = []
        self._waiting_of: dict[str, int] = {}

    def __enter__(self) -> DeadLetters:
        try:
            self._connection = self._app.connection_for_write()
            self._held = self._connection.channel()
            self._held.auto_decode = False  # bodies stay bytes
            self._open_sending()
        except brokers.GONE as error:
            raise BrokerError(f"the broker is away: {error}") from error
        return self

    def _open_sending(self) -> None:
        self._sending = self._connection.channel()
        self._sending.events["basic_return"].add(lambda *told: self._returned.append(told))

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(*brokers.GONE):
            self._connection.close()

    def roles(self) -> list[str]:
        """Return the roles that may have dead letters: those of tasks, and of the services that were ever offered."""
        served = {name.partition(".")[0] for name in Directory(self._app, self._topology).known()}
        return sorted(served | set(ROLES))

    def _waiting(self, role: str) -> int | None:
        """Return how many dead letters of a role wait, None where it has no queue for them."""
        with self._connection.channel() as channel:
            try:
                _, ready, _ = channel.queue_declare(self._topology.dead_queue(role).name, passive=True)
            except amqp.NotFound:
                return None
        return int(ready)

    def count(self) -> int | None:
        """Count the letters that wait now, which `each` then yields; None if the run has no queue of dead letters."""
        found = {role: self._waiting(role) for role in self.roles()}
        self._waiting_of = {role: number for role, number in found.items() if number is not None}
        return sum(self._waiting_of.values()) if self._waiting_of else None

    def each(self) -> Iterator[DeadLetter]:
        """Yield as many letters as were counted, queue by queue; later ones are left for the next time."""
        for role, number in self._waiting_of.items():
            for _ in range(number):
                found = self._held.basic_get(self._topology.dead_queue(role).name)
                if found is None:  # another program looks at the rest
                    break
                yield DeadLetter(found, self._topology)

    def put_back(self) -> None:
        """Put back all that is held, so that `each` yields it again."""
        self._held.basic_recover(requeue=True)

    def send_again(self, letter: DeadLetter, arguments: tuple[Any, Any] | None = None) -> None:
        """Send `letter` again as it was, or with other (args, kwargs); take it out once the broker has the copy.

        The copy counts as never begun, and a deadline that has passed is left out. Raises BrokerError where the broker
        does not take it, ClaimError where its long body is gone, CodecError for arguments outside the format; the
        letter stays then.
        """
        if arguments is None:
            if claim_stub.is_stub(letter.body):
                claim_check.redeem(letter.body)
            self._publish(letter, letter.body)
            self._held.basic_ack(letter.message.delivery_tag)
            return
        body = self._written(letter, arguments)
        try:
            self._publish(letter, body)
        except BrokerError:
            claim_check.release(body)
            raise
        self._held.basic_ack(letter.message.delivery_tag)
        claim_check.release(letter.body)

    def _written(self, letter: DeadLetter, arguments: tuple[Any, Any]) -> bytes:
        """Return the body of `letter` with these (args, kwargs), in its own format."""
        changed = (*arguments, letter.read()[2])
        if letter.message.properties.get("content_type") == JSON_TYPE:
            return write_json(changed).encode()
        return codec.encode(changed, self._app.warren_claims)

    def _publish(self, letter: DeadLetter, body: bytes) -> None:
        """Publish a copy of `letter` with that body; return once the broker has it. Raises BrokerError if not."""
        headers = {name: value for name, value in letter.headers.items() if not _is_added(name)}
        for name in ("expires", "eta"):
            moment = headers.get(name)
            if isinstance(moment, str) and is_moment(moment) and seconds_until(moment) <= 0:
                headers[name] = None
        properties = {name: value for name, value in letter.message.properties.items() if name in KEPT}
        copy = amqp.Message(body, application_headers=headers, delivery_mode=2, **properties)
        try:
            self._counts.forget([letter.id])
        except redis.RedisError as error:
            raise BrokerError(f"Redis is away, which holds whether it has run: {error}") from error
        self._returned.clear()
        try:
            self._sending.basic_publish_confirm(
                copy, letter.exchange, letter.key, mandatory=True, confirm_timeout=CONFIRMED_WITHIN
            )
        except amqp.exceptions.MessageNacked:
            raise BrokerError(f"the queue of {letter.key} is full") from None
        except amqp.NotFound:  # there is not even the exchange, and the channel is closed
            self._open_sending()
            raise BrokerError(NO_QUEUE.format(letter.key)) from None
        if self._returned:
            raise BrokerError(NO_QUEUE.format(letter.key))

    def drop(self, letter: DeadLetter) -> None:
        """Take `letter` out for good, with its long body."""
        self._held.basic_ack(letter.message.delivery_tag)
        claim_check.release(letter.body)


NO_QUEUE = "no queue takes {}: is anybody there to serve it?"
NONE_KEPT = "a Redis broker keeps no dead letters: what failed for good is told in the workers' logs alone"
KEPT = ("content_type", "content_encoding", "correlation_id", "message_id", "priority", "type")  # kept if sent again


def _exchange_of(topology: Topology, noted: str, task: Any, message: amqp.Message) -> str:
    """Return the exchange that a dead letter was sent to: as the broker noted it, else that of its task."""
    if noted in (topology.service.name, topology.actor.name, topology.learner.name):
        return noted
    known = isinstance(task, str)
    role, _, method = (task if known else str(message.delivery_info.get("routing_key"))).partition(".")
    of_role = {"actor": topology.actor, "learner": topology.learner}.get(role)
    found = topology.service if of_role is None or (known and method not in ROLE_TASKS) else of_role
    return str(found.name)


def _is_added(name: str) -> bool:
    return name in _ADDED or name.startswith(_ADDED_BEGINNINGS)


def _reason_of(death: dict[str, Any]) -> str:
    """Return why the broker moved a message, from its record."""
    known = {
        "rejected": "its worker rejected it: the call failed, see the worker's log",
        "expired": "it waited for longer than its time to live",
        "maxlen": "its queue was full",
        "delivery_limit": "it was delivered too often",
    }
    told = str(death.get("reason") or "unknown")
    return known.get(told, told)


def _died_at(noted: Any, moment: Any) -> float | None:
    if isinstance(noted, int):
        return float(noted)
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None
