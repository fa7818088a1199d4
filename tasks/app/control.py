"""Remote control under the run's own names: kombu's begin with a host's or a process's, which no permission fits."""

from __future__ import annotations

from typing import Any

from celery.app.control import Control
from kombu import Queue
from kombu.pidbox import Mailbox


class RunMailbox(Mailbox):  # type: ignore[misc]
    """Exchanges RUN.control.pidbox and RUN.control.reply; queues RUN.control.pidbox.NODE and RUN.control.reply.ID."""

    exchange_fmt = "%s.pidbox"
    reply_exchange_fmt = "%s.reply"

    def get_queue(self, hostname: str) -> Queue:
        """A worker's queue of commands."""
        return self._renamed(super().get_queue(hostname), f"{self.exchange.name}.{hostname}")

    def get_reply_queue(self) -> Queue:
        """A caller's queue of answers."""
        return self._renamed(super().get_reply_queue(), f"{self.reply_exchange.name}.{self.oid}")

    @staticmethod
    def _renamed(queue: Any, name: str) -> Queue:
        queue.name = name
        return queue


class RunControl(Control):  # type: ignore[misc]
    """`app.control` of every app of a run."""

    Mailbox = RunMailbox
