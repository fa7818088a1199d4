"""Failing of calls that no worker serves."""

from __future__ import annotations

import time

from tasks.admin.registry import Directory
from tasks.brokers import Connection
from tasks.client.call_errors import unserved
from tasks.client.call_table import CallTable
from tasks.client.future import Handle
from tasks.topology import Topology

ANSWERS_WITHIN = 0.5  # s that a broker gets to answer, though a call's deadline passes: nearly any takes less


class UnservedCalls:
    """Fails calls of `table` whose service has had no worker for longer than the table's patience."""

    def __init__(self, table: CallTable, topology: Topology, directory: Directory) -> None:
        self._table, self._topology, self._directory = table, topology, directory
        self._silent_since = 0.0  # when anything last came from a broker that then did not answer in time

    def returned(self, call_id: str) -> None:
        """Note that no queue took a call."""
        now = time.monotonic()
        if (call := self._table.returned(call_id, now)) is not None:
            self._fail(call, now)

    def look(self, link: Connection, now: float, before: float) -> None:
        """Count the workers of services whose answers have been awaited since `before`. Raises one of GONE.

        A broker that says nothing is not waited for beyond the first deadline of a call, nor asked again.
        """
        for name in self._table.out_since(before):
            if link.received_at == self._silent_since:
                return
            first = min((call.deadline for call in self._table.sent()), default=now)
            until = max(first, time.monotonic() + ANSWERS_WITHIN)
            consumers = link.consumers(self._topology.service_queue(name).name, until)
            if consumers is None:
                self._silent_since = link.received_at
                return
            for call in self._table.counted(name, consumers, now):
                self._fail(call, now)

    def _fail(self, call: Handle, now: float) -> None:
        name = call.spec.name
        waited = now - (call.unserved_since or now)
        self._table.fail(call, unserved(self._directory, name, waited, name in self._table.served))
