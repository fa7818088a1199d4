"""Streams of server-sent events: one look at a watched run serves all pages, and looks are too rare to slow the run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

logger = logging.getLogger(__name__)

EVERY = 1.0  # s between looks
SLOWEST = 1.5  # s between looks at a large league, even if they take more than SHARE of the time
SHARE = 0.05  # share of the time that looks should take
QUIET = 15.0  # s after which a comment keeps a silent stream open
WAITING = 8  # messages that wait for a slow page; instead of more, it is told to read all again


class Feed:
    """The messages of one run, for any number of pages; `look` is called in a thread, only while a page listens."""

    def __init__(
        self,
        look: Callable[[], dict[str, Any] | None],
        hello: Callable[[], dict[str, Any]],
        encode: Callable[[dict[str, Any]], bytes],
    ) -> None:
        """`hello`: makes a page's first message, by which the page knows if it missed anything since it was read."""
        self._look, self._hello, self._encode = look, hello, encode
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield messages until the page closes the stream."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(WAITING)
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield self._encode(self._hello())
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET)
                except TimeoutError:
                    yield b": still there\n\n"
        finally:
            self._listeners.discard(queue)

    @property
    def listeners(self) -> int:
        """Return the number of pages that listen."""
        return len(self._listeners)

    async def _run(self) -> None:
        while self._listeners:
            began = time.monotonic()
            message = None
            try:
                message = await asyncio.to_thread(self._look)
            except Exception:  # the pages that listen would wait for nothing from now on
                logger.exception("a look at a run failed; the next one may not")
            if message is not None:
                self._tell(message)
            await asyncio.sleep(min(SLOWEST, max(EVERY, (time.monotonic() - began) / SHARE)))

    def _tell(self, message: dict[str, Any]) -> None:
        data = self._encode(message)
        for queue in self._listeners:
            if queue.full():
                with contextlib.suppress(asyncio.QueueEmpty):
                    while True:
                        queue.get_nowait()
                queue.put_nowait(self._encode({**message, "anew": True, "cells": [], "players": []}))
            else:
                queue.put_nowait(data)
