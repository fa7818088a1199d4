"""The interface of brokers and of connections to them, which clients, workers and events use."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from tasks.amqp.frames import Delivery

# Number of a message, whether all before it are meant too, whether it was taken.
Settled = Callable[[int, bool, bool], None]
Returned = Callable[[str], None]  # correlation id


class Connection(Protocol):
    """One connection with a channel to consume on. Any thread may `send` and `publish`; one at a time may `drain`.

    Senders write whole AMQP frames (made by tasks.amqp.frames and messages), many at once where there are many.
    All methods raise one of GONE when the connection is lost; it cannot be used afterwards.
    """

    channel_id: int  # to consume and acknowledge on, and to publish on without confirmation
    frame_max: int  # bytes; no frame may be longer
    alive: bool
    received_at: float  # when anything last came from the broker, on the monotonic clock
    blocked: str  # why the broker takes no messages at the moment ("low on memory"); empty while it does

    def declare(self, entity: Any) -> None:
        """Declare a kombu Queue (with its exchange and binding) or Exchange.

        Raises ConfigurationError where it exists with other arguments.
        """

    def consume(self, queue: str, tag: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """Consume `queue`; deliveries carry `tag`. `prefetch`: messages to hold unacknowledged, 0 for any number."""

    def cancel(self, tag: str) -> None:
        """Consume no more under `tag`; what was delivered stays held."""

    def consumers(self, queue: str, until: float = math.inf) -> int | None:
        """Return the number of consumers of `queue`, 0 if it does not exist; None if not answered by `until`.

        `until` is on the monotonic clock. After None the connection can be used, and asked again.
        """

    def confirm(self, settled: Settled) -> int:
        """Open a channel in confirm mode and return its id; `drain` calls `settled` for its messages, from number 1."""

    def on_returned(self, returned: Returned) -> None:
        """Let `drain` call `returned` for mandatory messages that no queue took."""

    def send(self, data: bytes | memoryview) -> None:
        """Write whole frames."""

    def send_parts(self, parts: list[Any]) -> None:
        """Write whole frames that come in parts, without joining them first."""

    def publish(self, data: bytes) -> None:
        """Write messages without confirms, apart from `send`: acknowledgements pass even if the broker takes none."""

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """Return what was delivered, perhaps nothing; wait up to `timeout` s (None: a moment) for the first."""

    def wake_by(self, descriptor: int) -> None:
        """Let `drain` also return while `descriptor` is readable; its owner empties it."""

    @property
    def midway(self) -> bool:
        """Return whether a message has arrived in part."""

    def fileno(self) -> int:
        """Return a descriptor for event loops, readable when `drain(0)` has something to do."""

    def close(self) -> None:
        """Close the connection; unacknowledged messages go back to their queues. Idempotent."""

    def discard(self) -> None:
        """Drop the connection without telling the broker."""


class Broker(ABC):
    """One kind of broker, for one app."""

    direct_reply: ClassVar[bool]  # calls and replies pass on connections of our own; else by Celery and result backend
    refuses: ClassVar[bool]  # a full queue refuses a message; else senders read its length first
    dead_letters: ClassVar[bool]  # messages rejected for good are kept for a person to read

    def priority(self, level: int, levels: int) -> int:
        """Return the broker's message priority for `level` (0 the lowest) of `levels`."""
        return level

    @abstractmethod
    def connect(self) -> Connection:
        """Make a connection. Raises one of GONE when the broker is away; without `direct_reply`, always."""
