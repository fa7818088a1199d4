"""Messages without confirms: they have a connection of their own, which a broker short of memory may stop reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from celery.utils.log import get_logger

from tasks.amqp.frames import Delivery
from tasks.amqp.gone import GONE

logger = get_logger(__name__)

PROBE_EVERY = 0.05  # s between checks whether the publishing connection was closed, or takes no messages
HELD_UP = 64 << 20  # bytes of messages that may wait for a broker which takes none at the moment


class PublishingLink(Protocol):
    """The part of a connection by which messages are published."""

    blocked: str

    def send(self, data: bytes) -> None:
        """Write whole frames."""

    def drain(self, timeout: float | None = None) -> list[Delivery]:
        """Take in what the broker says."""

    def close(self) -> None:
        """Close the connection."""

    def discard(self) -> None:
        """Drop the connection without telling the broker."""


class Publisher:
    """Publishes over a connection of its own, which `connect` makes when it is first needed, or was closed.

    `lost` makes the error of too many messages held up, and marks the main connection as lost.
    """

    def __init__(self, connect: Callable[[], PublishingLink], lost: Callable[[str], Exception]) -> None:
        self._connect, self._lost = connect, lost
        self.link: PublishingLink | None = None
        self.held_up: list[bytes] = []  # messages, while the broker takes none
        self.probed_at = 0.0  # when the connection was last checked
        self._lock = threading.Lock()  # held while the connection is made or used

    def publish(self, data: bytes) -> None:
        """Write messages, or hold them up while the broker takes none. Raises LinkLost where too many wait for it."""
        with self._lock:
            link = self._ready()
            if not link.blocked and not self.held_up:
                link.send(data)
                return
            self.held_up.append(data)
            if sum(map(len, self.held_up)) > HELD_UP:
                raise self._lost(f"the broker takes no messages ({link.blocked}), and over {HELD_UP} bytes wait for it")

    def let_go(self) -> None:
        """Publish what was held up, when the broker takes messages again."""
        with self._lock:
            self.probed_at = 0.0
            link = self._ready()
            if not link.blocked:
                waiting = b"".join(self.held_up)
                self.held_up.clear()
                link.send(waiting)

    def _ready(self) -> PublishingLink:
        """Return the connection; a new one where the last was closed since it was used."""
        link = self.link
        if link is not None and time.monotonic() - self.probed_at > PROBE_EVERY:
            self.probed_at = time.monotonic()
            try:
                link.drain(0.0)
            except GONE as error:
                logger.info("the connection that publishes is gone, making another: %s", error)
                link.discard()
                link = None
        if link is None:
            link = self.link = self._connect()
        return link

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.link is not None:
            self.link.close()

    def discard(self) -> None:
        """Drop the connection, if there is one, and what was held up."""
        if self.held_up:
            logger.warning("%d messages were not sent: the broker took none", len(self.held_up))
            self.held_up.clear()
        if self.link is not None:
            self.link.discard()
