"""Remote control and task events under the run's own names, on queues of a named type.

kombu's own names begin with a host's or a process's, which no permission fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.app.control import Control
from celery.app.events import Events
from celery.events.receiver import EventReceiver
from celery.utils.log import get_logger
from kombu import Queue
from kombu.pidbox import Mailbox, Node

from tasks.topology import CLASSIC

logger = get_logger(__name__)


class RunNode(Node):  # type: ignore[misc]
    """A worker's end of remote control; what is no command is logged, and its channel stays as it is."""

    def handle_message(self, body: Any, message: Any = None) -> Any:
        """Act on a command; of those that go to all, or to others, each node knows some and passes over the rest."""
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
        """It is gone already: commands are not acknowledged."""
        logger.error("a message of remote control cannot be read: %s", exc)

    def _problem_with(self, body: Any, message: Any) -> str | None:
        if not isinstance(body, Mapping) or not isinstance(body.get("method"), str):
            return "it names no method"
        destination = body.get("destination")
        if not isinstance(destination, list | tuple | None):
            return "its destination is no list of workers"
        if body["method"] not in self.handlers and self.hostname in (destination or ()):
            return f"there is no command {body['method']!r}"
        if not isinstance(body.get("arguments"), Mapping | None):
            return "its arguments are no mapping"
        if not all(isinstance(body.get(name), str | None) for name in ("pattern", "matcher", "ticket")):
            return "its pattern, matcher or ticket is no text"
        reply_to = body.get("reply_to")
        # To an exchange that does not exist, the broker would close the channel of whoever replies.
        if reply_to is not None and not (
            isinstance(reply_to, Mapping)
            and reply_to.get("exchange") in (self.mailbox.reply_exchange.name, self.mailbox.stock_reply_exchange)
            and isinstance(reply_to.get("routing_key"), str)
        ):
            return f"it asks for a reply elsewhere than on {self.mailbox.reply_exchange.name}"
        clock = 0 if message is None else (message.headers or {}).get("clock", 0)
        return None if isinstance(clock, int | None) else "its clock is no number"


class RunMailbox(Mailbox):  # type: ignore[misc]
    """Exchanges RUN.control.pidbox and RUN.control.reply; queues RUN.control.pidbox.NODE and RUN.control.reply.ID."""

    node_cls = RunNode
    exchange_fmt = "%s.pidbox"
    reply_exchange_fmt = "%s.reply"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings | {"serializer": "json"})  # for clients that know Celery alone

    @property
    def stock_reply_exchange(self) -> str:
        """Name of the exchange on which clients that know Celery alone ask for answers."""
        return str(Mailbox.reply_exchange_fmt % self.namespace)

    def get_queue(self, hostname: str) -> Queue:
        """A worker's queue of commands."""
        return self._renamed(super().get_queue(hostname), f"{self.exchange.name}.{hostname}")

    def get_reply_queue(self) -> Queue:
        """A caller's queue of answers."""
        return self._renamed(super().get_reply_queue(), f"{self.reply_exchange.name}.{self.oid}")

    @staticmethod
    def _renamed(queue: Any, name: str) -> Queue:
        queue.name, queue.queue_arguments = name, dict(CLASSIC)
        return queue


class RunControl(Control):  # type: ignore[misc]
    """`app.control` of every app of a run."""

    Mailbox = RunMailbox


class RunEventReceiver(EventReceiver):  # type: ignore[misc]
    """Whoever watches the events of workers and tasks: Flower."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue.queue_arguments = dict(CLASSIC)


class RunEvents(Events):  # type: ignore[misc]
    """`app.events` of every app of a run."""

    receiver_cls = RunEventReceiver
