"""The view of a run from a file: living processes and served calls, as a table or as plain lines."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tasks.admin.cleanup import waiting
from tasks.admin.discovery import Served, discover, failures
from tasks.topology import Topology
from workers.ui.console import Terminal

logger = logging.getLogger(__name__)

ASK_EVERY = 2.0  # s between two questions to the workers, each of which takes a second
LINE_EVERY = 5.0  # s between plain lines
SHOW_EVERY = 0.25  # s between tables


@dataclass(frozen=True)
class Standing:
    """The state of one entry of the file on this host; `last`: last line of its output, for environments."""

    name: str
    count: int
    alive: int
    done: int
    restarts: int
    last: str


@dataclass(frozen=True)
class Calls:
    """The calls of one service, summed over its workers."""

    service: str
    workers: int
    calls: int
    per_second: float
    waiting: int
    failed: int
    dropped: int
    mean_batch: float
    failures: Sequence[str] = ()  # a line for each worker with failed calls


class CallCounts:
    """A thread that queries the workers every ASK_EVERY s; `newest`: their last answers."""

    def __init__(self, app: Any, topology: Topology) -> None:
        self._app, self._topology, self._stopping = app, topology, threading.Event()
        self.newest: list[Calls] = []
        self._before: dict[tuple[str, int], int] = {}
        self._asked_at = time.monotonic()
        self._connection: Any = None
        self._thread = threading.Thread(target=self._ask, name="call-counts", daemon=True)

    def start(self) -> CallCounts:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._thread.ident is not None:  # else the run failed before it was started
            self._thread.join(timeout=3.0)

    def _ask(self) -> None:
        while not self._stopping.wait(ASK_EVERY):
            try:
                served = discover(self._app)
                now = time.monotonic()
                self.newest, self._asked_at = self._sum(served, now - self._asked_at), now
            except Exception as error:  # a display must not stop the run; the next query may succeed
                logger.debug("cannot count the calls: %s", error)
                self._connection = None

    def _sum(self, served: Sequence[Served], seconds: float) -> list[Calls]:
        found: dict[str, list[Served]] = {}
        for one in served:
            found.setdefault(one.service, []).append(one)
        before, self._before = self._before, {(one.service, one.pid): one.calls for one in served}
        sums = []
        for service, ones in found.items():
            calls = sum(one.calls for one in ones)
            batches = sum(one.calls / one.mean_batch for one in ones if one.mean_batch)
            sums.append(
                Calls(
                    service=service,
                    workers=len(ones),
                    calls=calls,
                    # A worker that was restarted counts from zero.
                    per_second=sum(one.calls - before.get((service, one.pid), 0) for one in ones) / max(seconds, 1e-3),
                    waiting=sum(one.waiting for one in ones) + self._queued(service),
                    failed=sum(one.failed for one in ones),
                    dropped=sum(one.dropped for one in ones),
                    mean_batch=calls / batches if batches else 0.0,
                    failures=failures(ones),
                )
            )
        return sums

    def _queued(self, service: str) -> int:
        """Return the number of calls that no worker has received yet."""
        if self._connection is None:
            self._connection = self._app.connection_for_read()
            self._connection.ensure_connection(max_retries=1, interval_start=0)
        return waiting(self._connection, self._topology.service_queue(service))


class RunView(Terminal):
    """The view of a run from a file; `say` prints a line that stays."""

    def __init__(self, title: str, stream: TextIO = sys.stdout) -> None:
        super().__init__(stream)
        self._title = title
        self._at = 0.0

    def show(self, standings: Sequence[Standing], calls: Sequence[Calls], note: str = "") -> None:
        """Show the state of processes and calls; `note`: what is being waited for."""
        if time.monotonic() < self._at:
            return
        if self._live is not None:
            self._at = time.monotonic() + SHOW_EVERY
            self._live.update(_tables(self._title, standings, calls, note))
        else:
            self._at = time.monotonic() + LINE_EVERY
            for line in plain_lines(standings, calls, note):
                self.say(line)


def plain_lines(standings: Sequence[Standing], calls: Sequence[Calls], note: str = "") -> list[str]:
    """Return the same as lines of text."""
    alive = ", ".join(f"{one.name} {_alive(one)}" for one in standings)
    served = ", ".join(
        f"{one.service} {one.calls:,} calls ({one.per_second:,.0f}/s, {one.waiting} waiting"
        + (f", {one.failed:,} failed)" if one.failed else ")")
        for one in calls
    )
    said = [f"  {one.name}: {one.last}" for one in standings if one.last]
    wrong = [f"  {line}" for one in calls for line in one.failures]
    return ["; ".join(part for part in (alive, served, note) if part), *said, *wrong]


def _alive(one: Standing) -> str:
    text = f"{one.alive} of {one.count} alive"
    text += f", {one.done} done" if one.done else ""
    return text + (f", {one.restarts} restarts" if one.restarts else "")


def _tables(title: str, standings: Sequence[Standing], calls: Sequence[Calls], note: str) -> Group:
    who = Table("", "alive", "of", "done", "restarts", "last line", title=title, title_justify="left")
    for one in standings:
        red = "red" if one.alive + one.done < one.count else None
        who.add_row(
            one.name, str(one.alive), str(one.count), str(one.done or ""), str(one.restarts or ""), Text(one.last),
            style=red,
        )  # fmt: skip
    what = Table("service", "workers", "calls", "calls/s", "waiting", "failed", "dropped", "mean batch")
    for row in calls:
        what.add_row(
            Text(row.service), str(row.workers), f"{row.calls:,}", f"{row.per_second:,.0f}", str(row.waiting),
            f"{row.failed:,}", f"{row.dropped:,}", f"{row.mean_batch:.1f}",
        )  # fmt: skip
    wrong = [Text(line, "red") for one in calls for line in one.failures]
    return Group(who, what, *wrong, Text(note))
