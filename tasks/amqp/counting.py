"""Counting the consumers of a queue, each time on a channel of its own: the broker closes it if there is no queue."""

from __future__ import annotations

from typing import Any

from amqp.exceptions import NotFound

from tasks.amqp.gone import Unanswered


class Counting:
    """Counts over one `amqp.Connection`, whose waits for an answer may raise Unanswered."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._left: list[Any] = []  # channels that are to be closed: of a count that was not answered in time, too

    def consumers(self, queue: str) -> int | None:
        """Return the number of consumers, 0 where there is no such queue; None where that is not answered in time."""
        try:
            self._tidy_up()
            self._left.append(channel := self._connection.Channel(self._connection))
            channel.open()
            try:
                found = int(channel.queue_declare(queue, passive=True).consumer_count)
            except NotFound:
                found = 0
            self._tidy_up()
            return found
        except Unanswered:
            return None

    def _tidy_up(self) -> None:
        for channel in list(self._left):
            if channel.connection is not None:
                if not channel.is_open:  # not even that was answered so far
                    continue
                channel.close()
            self._left.remove(channel)
