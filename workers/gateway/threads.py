"""Threads for actors' plain functions: a limited number runs at once, and those that hang are counted and bounded.

A function whose game has stopped waiting cannot be ended: it keeps its thread until it returns. Until then it hangs,
and another thread takes its place.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class _Call:
    __slots__ = ("answer", "arguments", "ended", "function", "given_up", "loop")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments
        self.given_up = self.ended = False
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()


class Threads:
    """The threads of one event loop, which alone changes the counts; they do not keep the process from ending."""

    def __init__(self, at_once: int, most_hanging: int) -> None:
        self.hanging = 0  # functions that are no longer waited for
        self._most_hanging = most_hanging
        self._turns = asyncio.Semaphore(at_once)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._started = self._busy = 0  # threads, and calls that have not ended

    @property
    def exhausted(self) -> bool:
        """Return True if so many functions hang that no other may begin."""
        return self.hanging >= self._most_hanging

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in a thread and return its result. If cancelled, stop waiting; the function runs on."""
        async with self._turns:
            call = _Call(function, arguments)
            self._busy += 1
            if self._busy > self._started:
                self._started += 1
                threading.Thread(target=self._work, name=f"actor-{self._started}", daemon=True).start()
            self._calls.put(call)
            try:
                return await call.answer
            except asyncio.CancelledError:
                if not call.ended:  # else it ended in the turn of the loop that cancelled the wait
                    call.given_up = True
                    self.hanging += 1
                raise

    def close(self) -> None:
        """End the threads that wait for work."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            result, error = None, None
            try:
                result = call.function(*call.arguments)
            except Exception as raised:
                error = raised
            except BaseException as raised:  # it would end the event loop
                error = RuntimeError(f"it raised {type(raised).__name__}")
            if isinstance(error, StopIteration):  # a future does not accept one
                error = RuntimeError(f"it raised {error!r}")
            try:
                call.loop.call_soon_threadsafe(self._ended, call, result, error)
            except RuntimeError:  # the loop has closed: nothing waits
                return

    def _ended(self, call: _Call, result: Any, error: Exception | None) -> None:
        self._busy -= 1
        call.ended = True
        if call.given_up:
            self.hanging -= 1
        elif call.answer.cancelled():
            pass
        elif error is not None:
            call.answer.set_exception(error)
        else:
            call.answer.set_result(result)
