"""Receiving events: a thread with queues of its own that calls a handler for each, or for the newest."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from celery.utils.log import get_logger

from tasks import brokers, codec, context
from tasks.brokers import GONE
from tasks.events import over_amqp, over_redis
from tasks.service import Subscribed
from tasks.topology import Topology
from warren.errors import ConfigurationError, WireError
from warren.repeats import Repeats

logger = get_logger(__name__)

NEWER_WITHIN = 0.01  # least s that a subscriber which was busy or paused waits for a newer event: see _worth_a_wait
PAUSED_FOR = 0.3  # s; a check for events takes less, unless the process was stopped or the network is slow
KEPT_FOR = 0.5  # most s that an event is held back while newer ones keep arriving; after a longer pause, half of that
AGAIN_AFTER = 1.0  # s between tries to subscribe, and of an `on_connected` that failed

Handler = Callable[[Any], None]


class Subscription:
    """A thread with a connection and queues of its own that hands events to their handlers, one after another.

    `handlers`: event -> function called with its payload. One that is marked with `@event_handler(event, latest=False)`
    gets every event, while no more than its bound wait. Any other gets the newest: of the events that come while a
    handler runs, all but the newest are dropped. After a lost connection it subscribes anew and calls `on_connected`,
    so that the owner can fetch what it missed; while that raises, it is called again every second.
    """

    def __init__(
        self,
        app: Any,
        topology: Topology | None,
        handlers: Mapping[str, Handler],
        subscriber: str,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        if app is None or topology is None:
            app, topology = context.current()
        for name, handler in handlers.items():
            if inspect.iscoroutinefunction(handler):
                raise ConfigurationError(
                    f"the handler of event {name!r} is `async def`: a Subscription calls handlers in its thread; give "
                    "a plain function (asyncio.run_coroutine_threadsafe reaches a loop), or make it one of a Worker's"
                )
        self._app, self._topology, self._subscriber = app, topology, subscriber
        self._handlers = dict(handlers)
        self._marks = {name: _mark(name, handler) for name, handler in handlers.items()}
        self._source = (over_amqp if brokers.of(app).direct_reply else over_redis).Source
        self._on_connected, self._catch_up_at = on_connected, 0.0
        self._unreadable: dict[str, Repeats] = defaultdict(Repeats)  # event -> bodies that cannot be read
        self._kept: dict[str, list[bytes]] = {}  # event -> bodies not yet handed to its handler
        self._kept_since, self._kept_for = 0.0, KEPT_FOR
        self._stopping, self._subscribed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{subscriber}", daemon=True)

    def start(self, timeout: float = 30.0) -> Subscription:
        """Start the thread and return once every queue is bound: events fired from now on arrive.

        Raises WireError, having told the thread to end, if that takes longer than `timeout` s.
        """
        atexit.register(self.stop)  # a handler that is inside of C++ (torch's) when Python ends aborts the process
        self._thread.start()
        if not self._subscribed.wait(timeout):
            self.stop()
            raise WireError(f"could not subscribe to {', '.join(self._handlers)} within {timeout:.0f} s")
        return self

    def stop(self) -> None:
        """Unsubscribe; the queues go with the connection. The end of the process does so, too."""
        atexit.unregister(self.stop)
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():  # a handler may call this
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                # Queues get new names each time: the old ones are locked until the broker notices that the old
                # connection is gone, up to two heartbeats later.
                source = self._source(self._app, self._topology, self._marks, self._subscriber, self._keep)
                with contextlib.closing(source):
                    self._listen(source)
            except Exception as error:  # a thread that ended would do so unseen
                logger.warning(
                    "events: connection lost, subscribing anew (%s: %s)",
                    *(type(error).__name__, error),
                    exc_info=not isinstance(error, GONE),
                )
                self._stopping.wait(AGAIN_AFTER)

    def _listen(self, source: Any) -> None:
        self._catch_up_at = time.monotonic()
        wait = 0.0  # s to wait for a newer event; above 0 only if more may have been sent than has come
        while not self._stopping.is_set():
            if self._catch_up_at and time.monotonic() >= self._catch_up_at:
                self._catch_up()
            since, timeout = time.monotonic(), wait if self._kept else None
            found = source.receive(timeout)
            away = time.monotonic() - since
            if not found:
                since = time.monotonic()
                self._deliver()
                busy = time.monotonic() - since
                wait = _worth_a_wait(busy) if busy > NEWER_WITHIN else 0.0
            # Also if nothing was found: a read that timed out while the process was stopped finds nothing.
            if (found and source.full) or away > PAUSED_FOR + (timeout or 0.0):
                wait = max(wait, _worth_a_wait(away))
                self._kept_for = max(self._kept_for, away / 2)

    def _catch_up(self) -> None:
        """Call `on_connected`; what it needs (Redis, say) may be away for a moment itself."""
        try:
            if self._on_connected is not None:
                self._on_connected()
            self._catch_up_at = 0.0
        except Exception as error:
            logger.warning("events: could not catch up, trying again: %s: %s", type(error).__name__, error)
            self._catch_up_at = time.monotonic() + AGAIN_AFTER
        self._subscribed.set()

    def _keep(self, name: str, body: bytes) -> None:
        if not self._kept:
            self._kept_since = time.monotonic()
        kept = self._kept.setdefault(name, [])
        if self._marks[name].latest:
            kept.clear()
        kept.append(body)
        # Here and not in `_listen`: on a Redis broker, kombu does not return while events keep arriving. A full bound
        # is delivered at once too, so that what has not been read waits in the broker's queue, which has that bound.
        full = not self._marks[name].latest and len(kept) >= self._marks[name].bound
        if full or time.monotonic() - self._kept_since > self._kept_for:
            self._deliver()

    def _deliver(self) -> None:
        kept, self._kept, self._kept_for = self._kept, {}, KEPT_FOR
        for name, bodies in kept.items():
            for body in bodies:
                try:
                    payload = codec.decode(body)
                except Exception as error:  # anything may be sent
                    if line := self._unreadable[name].line(f"event {name!r} cannot be read and is dropped: {error}"):
                        logger.error("%s", line)
                    continue
                try:
                    self._handlers[name](payload)
                except Exception:
                    logger.exception("the handler of event %r failed", name)


def _worth_a_wait(away: float) -> float:
    """Return the s to wait for a newer event after `away` s without a look: a tenth of it, at most KEPT_FOR."""
    return min(max(NEWER_WITHIN, away / 10), KEPT_FOR)


def _mark(name: str, handler: Handler) -> Subscribed:
    """Return the subscription of `handler`: its mark, or else the newest event of that name."""
    marked: Subscribed | None = getattr(handler, "__subscribed__", None)
    return Subscribed(name, latest=True) if marked is None else replace(marked, event=name)
