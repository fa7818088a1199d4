"""What clients, workers and events ask of a broker, and of a connection to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from tasks.amqp.frames import Delivery

# Number of a message, whether all before it are meant too, whether it was taken.
Settled = Callable[[int, bool, bool], None]
Returned = Callable[[str], None]  # correlation id


class Connection(Protocol):
    """One connection with a channel to consume on. `send` and `publish` from any thread; one thread at a time drains.

    What is sent are whole AMQP frames (tasks.amqp.frames and messages make them), many at once where there are many.
    All methods raise one of GONE when the connection is lost; it is of no use afterwards.
    """

    channel_id: int  # of what is consumed and acknowledged here, and of what is published without confirmation
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

    def consumers(self, queue: str) -> int:
        """How many consume `queue`; 0 where there is no such queue."""

    def confirm(self, settled: Settled) -> int:
        """A channel in confirm mode: within `drain`, `settled` is told of each message sent there, numbered from 1."""

    def on_returned(self, returned: Returned) -> None:
        """`returned` is called, within `drain`, for mandatory messages that no queue took."""

    def send(self, data: bytes | memoryview) -> None:
        """Write whole frames."""

    def send_parts(self, parts: list[Any]) -> None:
        """Write whole frames that come in parts, without joining them first."""

    def publish(self, data: bytes) -> None:
        """Write messages that nobody confirms, past `send`: when the broker takes none, acknowledgements still pass."""

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """What has been delivered; waits up to `timeout` s (None: a moment) for the first, and may return none."""

    def wake_by(self, descriptor: int) -> None:
        """Have `drain` return, too, while `descriptor` is readable; whoever it belongs to empties it."""

    @property
    def midway(self) -> bool:
        """Whether the beginning of a message has come, and not yet its end."""

    def fileno(self) -> int:
        """For event loops: readable when `drain(0)` has something to do."""

    def close(self) -> None:
        """Close; unacknowledged messages go back to their queues. Safe to call again."""

    def discard(self) -> None:
        """Drop the connection without telling the broker."""


class Broker(ABC):
    """One kind of broker, for one app."""

    direct_reply: ClassVar[bool]  # calls and replies pass on connections of our own; else by Celery and result backend
    refuses: ClassVar[bool]  # a full queue refuses a message; else senders read its length first
    dead_letters: ClassVar[bool]  # what is rejected for good is kept for a person to read

    def priority(self, level: int, levels: int) -> int:
        """The priority of a message of that level, 0 the lowest of so many."""
        return level

    @abstractmethod
    def connect(self) -> Connection:
        """A new connection. Raises one of GONE when the broker is away; where there is no `direct_reply`, always."""
