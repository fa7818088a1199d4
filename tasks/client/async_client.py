"""Calls from asyncio: the loop watches the client's socket, so a call in flight costs no thread.

The loop's thread only ever writes what the socket takes at once and reads what has come. A thread of background.py does
all that may wait for the broker: connecting, finding who serves a call, sending again. It also does all that may wait
for Redis: storing bodies too long for a message before they are sent, and fetching them before they are returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

from tasks.client import background
from tasks.client.driver import Driver
from tasks.client.future import Handle
from tasks.client.outgoing import Outgoing, delay_of
from tasks.codec import claim_check
from tasks.service import Spec
from warren.errors import BrokerError

ONE_WAY_WINDOW = 256  # one-way calls that may be out unconfirmed; more wait here, in order
CLOSE_WITHIN = 5.0  # s that one-way calls get to arrive before their client is closed
CLOSE_POLL = 0.01  # s between checks whether they have arrived


class AsyncClient:
    """One event loop's client. Make and use it in that loop's thread. `client`: one that may not block.

    It closes by itself when the loop ends as `asyncio.run` ends it (`loop.shutdown_asyncgens`); otherwise call `close`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Driver) -> None:
        self.loop, self._client = loop, client
        self._thread = threading.get_ident()
        self._watched: Any = None  # the connection that the loop watches,
        self._descriptor = -1  # by a descriptor of our own: the number cannot become another file's meanwhile
        self._ticking = False
        self._tending = self._tend_again = False
        self._storing = False  # a one-way call's body is on its way to Redis
        self._waiting: deque[tuple[asyncio.Future[Any], Spec, Any, Any, Outgoing | None]] = (
            deque()
        )  # one-way calls that wait for room
        self.finding: dict[str, asyncio.Task[Spec]] = {}  # name -> its look-up, while it is not known
        self.unsent: set[asyncio.Task[Any] | None] = set()  # calls that wait for such a look-up
        self._closed = False
        self._end = self._at_the_loops_end()
        with contextlib.suppress(StopIteration):
            self._end.__anext__().send(None)  # the loop closes the generators that have begun

    @property
    def longest_delay(self) -> float:
        """See Driver."""
        return self._client.longest_delay

    async def _at_the_loops_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._finish()

    # The end.

    async def aclose(self) -> None:
        """Wait until the broker has all one-way calls, CLOSE_WITHIN s at most, then close; calls under way fail."""
        await self._end.aclose()

    async def _finish(self) -> None:
        limit = time.monotonic() + CLOSE_WITHIN
        while not self._closed and self._has_unsent() and time.monotonic() < limit:
            await asyncio.sleep(CLOSE_POLL)
        self._detach()
        await background.run(self.loop, self._client.close)

    def _has_unsent(self) -> bool:
        return bool(self.unsent or self._waiting or self._client.unconfirmed)

    def close(self) -> None:
        """Close at once; calls under way fail. Any thread may, also when the loop has ended."""
        elsewhere = self.loop.is_running() and threading.get_ident() != self._thread
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            if elsewhere:
                self.loop.call_soon_threadsafe(self._detach)
        if not elsewhere or self.loop.is_closed():
            self._detach()
        self._client.close()

    def _detach(self) -> None:
        """Stop watching the socket, and fail the calls that wait to be sent."""
        self._closed = True
        self._unwatch()
        while self._waiting:
            future, *_ = self._waiting.popleft()
            if not future.done() and not self.loop.is_closed():
                future.set_exception(BrokerError("the Solver was closed before this call was sent"))

    # Calls.

    def submit(
        self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None, extra: Outgoing | None = None
    ) -> asyncio.Future[Any]:
        """Send a call; return a future of its result or, for a one-way call, of the broker's confirmation.

        One-way calls over ONE_WAY_WINDOW are not sent until the broker has confirmed others: await them.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        if not spec.response and (self._waiting or not self._has_room()):
            self._waiting.append((future, spec, args, kwargs, extra))
            self._keep_ticking()
        else:
            self._send(future, spec, args, kwargs, time_to_live, extra)
        return future

    def _has_room(self) -> bool:
        """Return whether a one-way call may be sent now, in the order of the calls."""
        return not self._storing and self._client.unconfirmed < ONE_WAY_WINDOW

    def _send(
        self,
        future: asyncio.Future[Any],
        spec: Spec,
        args: Any,
        kwargs: Any,
        time_to_live: float | None,
        extra: Outgoing | None,
    ) -> None:
        """Send a call, a long one once Redis holds its body."""
        body = self._client.bodies.pack(args, kwargs)
        if not self._client.bodies.is_long(body):
            self._send_packed(future, spec, body, time_to_live, extra)
            return
        self._storing = self._storing or not spec.response

        def stored(storing: asyncio.Future[bytes]) -> None:
            if not spec.response:
                self._storing = False
            if storing.cancelled():
                future.cancel()
            elif error := storing.exception():
                if not future.done():
                    future.set_exception(error)
            elif future.done():  # cancelled meanwhile
                background.submit(claim_check.release, storing.result())
            else:
                self._try_send(partial(self._send_packed, future, spec, storing.result(), time_to_live, extra), future)
            self._send_waiting()

        background.run(self.loop, self._client.bodies.store, body, delay_of(extra)).add_done_callback(stored)

    def _send_packed(
        self, future: asyncio.Future[Any], spec: Spec, body: Any, time_to_live: float | None, extra: Outgoing | None
    ) -> None:
        handle: Handle = self._client.submit_packed(spec, body, time_to_live, extra)

        def settle() -> None:
            if self.loop.is_closed():
                return  # nothing waits any more
            if handle.is_long or self._client.bodies.forgotten:
                background.run(self.loop, fetch).add_done_callback(fetched)
            elif not future.done():
                try:
                    future.set_result(handle.outcome())
                except Exception as error:
                    future.set_exception(error)
            self._send_waiting()

        def fetch() -> Any:
            self._client.bodies.forget_all()
            return handle.outcome()

        def fetched(fetching: asyncio.Future[Any]) -> None:
            error = None if fetching.cancelled() else fetching.exception()
            if future.done():
                return
            if fetching.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(fetching.result())

        def ended(_: Handle) -> None:
            if threading.get_ident() == self._thread:
                settle()
            else:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self.loop.call_soon_threadsafe(settle)

        def done(_: asyncio.Future[Any]) -> None:
            if future.cancelled() and not handle.ended:
                background.submit(self._client.cancel, handle)  # it tells the workers

        handle.when_ended(ended)
        future.add_done_callback(done)
        self._watch()
        self._tend()
        self._keep_ticking()

    def _send_waiting(self) -> None:
        while self._waiting and self._has_room():
            future, spec, args, kwargs, extra = self._waiting.popleft()
            if not future.done():
                self._try_send(partial(self._send, future, spec, args, kwargs, None, extra), future)

    def _try_send(self, send: Callable[[], None], future: asyncio.Future[Any]) -> None:
        try:
            send()
        except Exception as error:  # arguments that cannot be sent, or the client was closed
            future.set_exception(error)

    # Done by the loop.

    def _watch(self) -> None:
        """Watch the socket of the present connection in the loop."""
        link = self._client.link
        if link is self._watched or self._closed:
            return
        self._unwatch()
        if link is not None:
            try:
                self._descriptor = os.dup(link.fileno())
            except OSError:  # lost already, which the next poll finds out
                return
            self._watched = link
            self.loop.add_reader(self._descriptor, self._readable)

    def _unwatch(self) -> None:
        if self._descriptor >= 0:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._watched, self._descriptor = None, -1

    def _readable(self) -> None:
        self._client.poll()
        self._watch()

    def _tend(self) -> None:
        """Start in another thread what may take a while."""
        if self._closed or not self._client.needs_tending:
            return
        if self._tending:
            self._tend_again = True  # the one under way may be past the work that this one is for
            return
        self._tending, self._tend_again = True, False
        tended = background.run(self.loop, self._client.tend)
        tended.add_done_callback(self._tended)

    def _tended(self, tended: asyncio.Future[None]) -> None:
        self._tending = False
        if not tended.cancelled():
            tended.result()  # raises what went wrong there
        self._client.poll()  # nothing woke the loop for what arrived meanwhile
        self._watch()
        if self._tend_again:
            self._tend()

    def _tick(self) -> None:
        self._ticking = False
        if self._closed:
            return
        self._client.poll()
        self._client.expire()
        self._watch()
        self._tend()
        self._send_waiting()
        if self._client.under_way > 0 or self._waiting:
            self._keep_ticking()

    def _keep_ticking(self) -> None:
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(self._client.poll_every, self._tick)
