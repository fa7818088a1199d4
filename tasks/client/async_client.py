"""Calls from asyncio: the loop watches the client's socket, so a call in flight costs no thread."""

from __future__ import annotations

import asyncio
from typing import Any

from tasks.client.future import Handle
from tasks.service import Spec

LOOK_EVERY = 0.05  # s between looks at deadlines and lost connections while calls are under way


class AsyncClient:
    """One event loop's client. Use it from that loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Any) -> None:
        self.loop, self._client = loop, client
        self._watched: int | None = None
        self._ticking = False

    def submit(self, spec: Spec, args: Any, kwargs: Any, time_to_live: float | None) -> asyncio.Future[Any]:
        """Send a call; a future of its result."""
        future: asyncio.Future[Any] = self.loop.create_future()
        handle: Handle = self._client.submit(spec, args, kwargs, time_to_live)

        def ended() -> None:
            if not future.done():
                try:
                    future.set_result(handle._outcome())
                except Exception as error:
                    future.set_exception(error)

        def cancelled(_: asyncio.Future[Any]) -> None:
            if future.cancelled() and not handle._arrived:
                self._client.forget(handle)

        handle._future = ended
        future.add_done_callback(cancelled)
        if handle._arrived:
            ended()
        self._watch()
        if not self._ticking:
            self._ticking = True
            self.loop.call_later(LOOK_EVERY, self._tick)
        return future

    def _watch(self) -> None:
        """Have the loop look at the socket of the present connection."""
        descriptor = self._client.fileno()
        if descriptor != self._watched:
            if self._watched is not None:
                self.loop.remove_reader(self._watched)
            if descriptor is not None:
                self.loop.add_reader(descriptor, self._readable)
            self._watched = descriptor

    def _readable(self) -> None:
        self._client.look()
        self._watch()

    def _tick(self) -> None:
        self._client.look()
        self._client.expire()
        self._watch()
        self._ticking = self._client.under_way > 0
        if self._ticking:
            self.loop.call_later(LOOK_EVERY, self._tick)
