"""Remote control and task events under the run's own names, on queues of a named type.

kombu's own names begin with the name of a host or a process, which no permission can match.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from celery.app.control import Control
from celery.app.events import Events
from celery.events.receiver import EventReceiver
from celery.utils.log import get_logger
from celery.worker import state as worker_state
from kombu import Queue
from kombu.pidbox import Mailbox, Node

from tasks.app.publishing import RETRY_POLICY
from tasks.brokers.declaring import declare
from tasks.topology import CLASSIC

logger = get_logger(__name__)


class RunNode(Node):  # type: ignore[misc]
    """A worker's end of remote control; a message that is not a command is logged, and the channel stays open."""

    def listen(self, channel: Any = None, callback: Any = None) -> Any:
        """Consume commands; first declare the exchanges, which RabbitMQ forgets when it restarts."""
        connection = self.channel.connection.client
        for exchange in (self.mailbox.exchange, self.mailbox.reply_exchange):
            declare(connection, exchange, _worker_stops_within)
        return super().listen(channel, callback)

    def handle_message(self, body: Any, message: Any = None) -> Any:
        """Run a command. Log and drop a malformed one; skip one that this node does not know: it is for others."""
        problem = self._problem_with(body, message)
        if problem is not None:
            logger.error("a message of remote control is refused: %s", problem)
            return None
        if body["method"] not in self.handlers:
            logger.debug("passed over %s, a command for others", body["method"])
            return None
        return super().handle_message(body, message)

    dispatch_from_message = handle_message

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Log an unreadable command; it is gone already, since commands are not acknowledged."""
        logger.error("a message of remote control cannot be read: %s", exc)

    def _problem_with(self, body: Any, message: Any) -> str | None:
        if not isinstance(body, Mapping) or not isinstance(body.get("method"), str):
            return "it names no method"
        destination = body.get("destination")
        if not isinstance(destination, list | tuple | None):
            return "its destination is not a list of workers"
        if body["method"] not in self.handlers and self.hostname in (destination or ()):
            return f"there is no command {body['method']!r}"
        if not isinstance(body.get("arguments"), Mapping | None):
            return "its arguments are not a mapping"
        if not all(isinstance(body.get(name), str | None) for name in ("pattern", "matcher", "ticket")):
            return "its pattern, matcher or ticket is not a text"
        reply_to = body.get("reply_to")
        # The broker closes the channel of a process that replies to an exchange that does not exist.
        if reply_to is not None and not (
            isinstance(reply_to, Mapping)
            and reply_to.get("exchange") in (self.mailbox.reply_exchange.name, self.mailbox.stock_reply_exchange)
            and isinstance(reply_to.get("routing_key"), str)
        ):
            return f"it asks for a reply elsewhere than on {self.mailbox.reply_exchange.name}"
        clock = 0 if message is None else (message.headers or {}).get("clock", 0)
        return None if isinstance(clock, int | None) else "its clock is not a number"


def _worker_stops_within(seconds: float) -> bool:
    """Wait; raises WorkerShutdown or WorkerTerminate where this process's worker was told to end."""
    time.sleep(seconds)
    worker_state.maybe_shutdown()
    return False


class RunMailbox(Mailbox):  # type: ignore[misc]
    """Exchanges RUN.control.pidbox and RUN.control.reply; queues RUN.control.pidbox.NODE and RUN.control.reply.ID."""

    node_cls = RunNode
    exchange_fmt = "%s.pidbox"
    reply_exchange_fmt = "%s.reply"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings | {"serializer": "json"})  # for clients that know Celery alone

    @property
    def stock_reply_exchange(self) -> str:
        """Return the name of the exchange on which clients that know Celery alone ask for answers."""
        return str(Mailbox.reply_exchange_fmt % self.namespace)

    def get_queue(self, hostname: str) -> Queue:
        """Return a worker's queue of commands."""
        return self._renamed(super().get_queue(hostname), f"{self.exchange.name}.{hostname}")

    def get_reply_queue(self) -> Queue:
        """Return a caller's queue of answers."""
        return self._renamed(super().get_reply_queue(), f"{self.reply_exchange.name}.{self.oid}")

    @contextmanager
    def producer_or_acquire(self, producer: Any = None, channel: Any = None) -> Iterator[Any]:
        """Yield what publishes one message; left to itself, kombu would try until the broker is back."""
        with super().producer_or_acquire(producer, channel) as found:
            yield SimpleNamespace(publish=partial(found.publish, retry_policy=RETRY_POLICY))

    @staticmethod
    def _renamed(queue: Any, name: str) -> Queue:
        queue.name, queue.queue_arguments = name, dict(CLASSIC)
        return queue


class RunControl(Control):  # type: ignore[misc]
    """`app.control` of every app of a run."""

    Mailbox = RunMailbox


class RunEventReceiver(EventReceiver):  # type: ignore[misc]
    """The receiver of worker and task events, which Flower uses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue.queue_arguments = dict(CLASSIC)


class RunEvents(Events):  # type: ignore[misc]
    """`app.events` of every app of a run."""

    receiver_cls = RunEventReceiver
