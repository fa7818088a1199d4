"""Events on a Redis broker, by kombu. Events for a slow subscriber wait in the server's output buffer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from celery.utils.log import get_logger

from tasks import codec
from tasks.codec import claim_check
from tasks.events.chunks import CLAIM_LASTS
from tasks.service import Subscribed
from tasks.topology import Topology
from warren.repeats import Repeats

logger = get_logger(__name__)

SHORTEST_POLL = 0.002  # s; to kombu, 0 means no time limit
IDLE_POLL = 0.2  # s that an idle subscription waits for events before it checks whether to stop


class Sender:
    """Fires events through the app's own producers. For any thread."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._topology = app, topology

    def send(self, name: str, body: bytes) -> None:
        """Send a packed payload to all present subscribers of `name`. Raises kombu's OperationalError."""
        exchange = self._topology.event(name)
        with self._app.producer_pool.acquire(block=True) as producer, claim_check.time_to_live(CLAIM_LASTS):
            producer.publish(
                self._app.warren_claims.check_in(body),
                exchange=exchange,
                routing_key="",  # it is a part of the channel's name
                content_type=codec.CONTENT_TYPE,
                content_encoding="binary",
                declare=[exchange],
                retry=True,
                retry_policy=self._app.conf.task_publish_retry_policy,
            )

    def close(self) -> None:
        """Do nothing: the producers are the app's."""


class Source:
    """The queues of one subscription on a connection of its own. `subscribed`: name -> what it subscribes to.

    `keep` is called with the name and the body of each event, also while more keep arriving.
    """

    full = False

    def __init__(
        self,
        app: Any,
        topology: Topology,
        subscribed: Mapping[str, Subscribed],
        subscriber: str,
        keep: Callable[[str, bytes], None],
    ) -> None:
        self._keep = keep
        self._refused = Repeats()
        with contextlib.ExitStack() as stack:
            self._connection = stack.enter_context(app.connection_for_read())
            self._connection.connect()
            channel = stack.enter_context(self._connection.channel())
            for name, on in subscribed.items():
                stack.enter_context(
                    self._connection.Consumer(
                        topology.event_queue(on.event, subscriber),
                        channel=channel,
                        on_message=lambda message, name=name: self._take(name, message),
                        on_decode_error=self._refuse,
                        accept=[codec.NAME],
                        no_ack=True,
                    )
                )
            self.receive(SHORTEST_POLL)  # kombu subscribes at the first poll
            self._stack = stack.pop_all()

    def receive(self, timeout: float | None) -> bool:
        """Take in what arrives, waiting up to `timeout` s (None: a moment) for it; return False when nothing has."""
        try:
            self._connection.drain_events(timeout=IDLE_POLL if timeout is None else max(timeout, SHORTEST_POLL))
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Unsubscribe."""
        self._stack.close()

    def _take(self, name: str, message: Any) -> None:
        self._keep(name, bytes(message.body))

    def _refuse(self, message: Any, error: Exception) -> None:
        """Log a message that is not an event; it is gone, and the subscription stays."""
        if line := self._refused.line(f"a message of an event is refused: {error}"):
            logger.error("%s", line)
