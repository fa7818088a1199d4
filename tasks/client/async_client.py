"""Calls from asyncio: the loop watches the client's socket, so a call in flight costs no thread.

The loop's thread only ever writes what the socket takes at once and reads what has come. Whatever may wait for the
broker (connecting, looking who serves a call, sending again) happens in a thread of the loop's executor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from typing import Any

from tasks.client.future import Handle
from tasks.service import Spec

POLL_EVERY = 0.05  # s between checks of deadlines and lost connections while calls are in flight
ONE_WAY_WINDOW = 256  # one-way calls that may be out unconfirmed; more wait here, in order


class AsyncClient:
    """One event loop's client. Use it from that loop's thread only. `client`: one that may not block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        self.loop, self._client = loop, client
        self._thread = threading.get_ident()
        self._watched: Any = None  # the connection that the loop watches,
        self._descriptor = -1  # by a descriptor of our own: the number cannot become another file's meanwhile
        self._ticking = False
        self._tending = False
        self._waiting: deque[tuple[asyncio.Future[Any], Spec, Any, Any]] = deque()  # one-way calls, for room

    def submit(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> asyncio.Future[Any]:
        """Send a call; a future of its result, or for a one-way call of the broker's having it.

        One-way calls over ONE_WAY_WINDOW are not sent until the broker has confirmed others: await them.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        if not spec.response and (self._waiting or self._client.unconfirmed >= ONE_WAY_WINDOW):
            self._waiting.append((future, spec, args, kwargs))
        else:
            self._send(future, spec, args, kwargs, time_to_live)
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(POLL_EVERY, self._tick)
        return future

    def _send(
        self, future: asyncio.Future[Any], spec: Spec, args: Any, kwargs: Any, time_to_live: float | None
    ) -> None:
        handle: Handle = self._client.submit(spec, args, kwargs, time_to_live)

        def settle() -> None:
            if not future.done():
                try:
                    future.set_result(handle.outcome())
                except Exception as error:
                    future.set_exception(error)
            if self._waiting:
                self._send_waiting()

        def ended() -> None:
            if threading.get_ident() == self._thread:
                settle()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    self.loop.call_soon_threadsafe(settle)

        def done(_: asyncio.Future[Any]) -> None:
            if future.cancelled() and not handle.ended:
                self.loop.run_in_executor(None, self._client.cancel, handle)  # it tells the workers

        handle.on_end = ended
        future.add_done_callback(done)
        if handle.ended:
            settle()
        self._watch()
        self._tend()

    def _send_waiting(self) -> None:
        while self._waiting and self._client.unconfirmed < ONE_WAY_WINDOW:
            future, spec, args, kwargs = self._waiting.popleft()
            if future.done():
                continue
            try:
                self._send(future, spec, args, kwargs, None)
            except Exception as error:  # arguments that cannot be sent
                future.set_exception(error)

    def _watch(self) -> None:
        """Have the loop watch the socket of the present connection."""
        link = self._client.link
        if link is self._watched:
            return
        if self._descriptor >= 0:
            self.loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._watched, self._descriptor = link, -1
        if link is not None:
            try:
                self._descriptor = os.dup(link.fileno())
            except OSError:  # lost already, which the next poll finds out
                self._watched = None
            else:
                self.loop.add_reader(self._descriptor, self._readable)

    def _readable(self) -> None:
        self._client.poll()
        self._watch()

    def _tend(self) -> None:
        """Have done, in another thread, what may take a while."""
        if self._tending or not self._client.needs_tending:
            return
        self._tending = True
        tended = self.loop.run_in_executor(None, self._client.tend)
        tended.add_done_callback(self._tended)

    def _tended(self, tended: asyncio.Future[None]) -> None:
        self._tending = False
        if not tended.cancelled():
            tended.result()  # whatever went wrong there is to be seen
        self._client.poll()  # what arrived meanwhile woke nobody
        self._watch()

    def _tick(self) -> None:
        self._client.poll()
        self._client.expire()
        self._watch()
        self._tend()
        if self._waiting:
            self._send_waiting()
        self._ticking = self._client.under_way > 0 or bool(self._waiting)
        if self._ticking:
            self.loop.call_later(POLL_EVERY, self._tick)
