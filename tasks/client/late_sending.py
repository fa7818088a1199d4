"""Calls that cannot be written at once: repeated ones, delayed ones, and those that need another channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tasks.brokers import GONE, Connection
from tasks.client.call_table import CallTable
from tasks.client.delay import DelayQueues
from tasks.client.reconnect import Reconnector

AT_ONCE = 256  # calls in one write


class LateSending:
    """Writes calls of `table` that wait, while the reading lock is held; `writing` is taken here.

    `on_lost` is called with a connection that breaks and its error.
    """

    def __init__(
        self,
        table: CallTable,
        connector: Reconnector,
        delays: DelayQueues,
        writing: threading.Lock,
        on_lost: Callable[[Connection, BaseException], None],
    ) -> None:
        self._table, self._connector, self._delays = table, connector, delays
        self._writing, self._on_lost = writing, on_lost

    def send_due(self, now: float) -> None:
        """Write the waiting calls that are due. Raises one of GONE."""
        if not self._table.due(now):
            return
        if waiting := self._table.one_way_waiting():
            self.open_confirms()
            for name, milliseconds in {(call.spec.name, call.extra.delay) for call in waiting if call.extra}:
                link = self._connector.link
                if milliseconds and link is not None and link.alive:
                    self._delays.declare(link, name, milliseconds)
        while True:
            with self._writing:
                link = self._connector.link
                if link is None or link.blocked or not (data := self._table.send_due(now, AT_ONCE)):
                    return
                link.send(data)

    def try_send_due(self, now: float) -> None:
        """Write the waiting calls that are due, if the connection allows it."""
        link = self._connector.link
        try:
            self.send_due(now)
        except GONE as error:
            if link is not None:
                self._on_lost(link, error)

    def open_confirms(self) -> None:
        """Open the channel of one-way calls, if there is a connection."""
        link = self._connector.link
        if not self._table.confirming and link is not None and link.alive and not link.blocked:
            try:
                channel = link.confirm(self._confirmed)
            except GONE as error:
                self._on_lost(link, error)
                return
            with self._writing:
                if self._connector.link is link:
                    self._table.confirm_on(channel)

    def _confirmed(self, number: int, multiple: bool, taken: bool) -> None:
        self._table.confirmed(number, multiple, taken, time.monotonic())
