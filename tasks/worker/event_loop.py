"""The event loop in which `async def` services and event handlers of one process run: a thread, and its turns.

The loop and the thread of plain services take turns: either a plain service or handler runs, or one step of an async
one, from an await to the next. So all of them share state without locks, as plain ones always did. The loop gives its
turn away while it waits, and the thread that waits for a turn is the next to have it.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable
from typing import Any

from celery.utils.log import get_logger

logger = get_logger(__name__)

ENDS_WITHIN = 1.0  # s that the tasks of a loop that ends have to end in after they are cancelled


class Turn:
    """A lock for two threads, neither of which can keep the other waiting by taking it again and again."""

    def __init__(self) -> None:
        self._next, self._lock = threading.Lock(), threading.Lock()

    def acquire(self) -> None:
        """Wait for the turn."""
        with self._next:
            self._lock.acquire()

    def release(self) -> None:
        """Give the turn away."""
        self._lock.release()

    def taken_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `function` within a turn."""

        def in_turn(*args: Any) -> Any:
            self.acquire()
            try:
                return function(*args)
            finally:
                self.release()

        return in_turn


class _Selector(selectors.DefaultSelector):
    """Gives the turn away while the loop waits."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> Any:
        """See selectors.BaseSelector."""
        self._turn.release()
        try:
            return super().select(timeout)
        finally:
            self._turn.acquire()


class EventLoop:
    """A thread with an asyncio loop.

    `on_broken`: called in it with the SystemExit of a user's own task, which ended the loop.
    """

    def __init__(self, *on_broken: Callable[[BaseException], None]) -> None:
        self.turn = Turn()
        self.on_broken = list(on_broken)
        self._loop = asyncio.SelectorEventLoop(_Selector(self.turn))
        self._thread = threading.Thread(target=self._run, name="async-services", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Have the loop call `function` soon; from any thread."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError as error:  # closed: this worker ends
            logger.debug("not called in the loop of async services: %s", error)

    def spawn(
        self, function: Callable[[Any], Any], payload: Any, ended: Callable[[BaseException | None], None]
    ) -> None:
        """Await `function(payload)` in the loop; `ended` is called there with its error or None. From any thread."""

        async def guarded() -> BaseException | None:
            try:
                await function(payload)
            except BaseException as error:  # SystemExit too, which would end the loop before anybody was told
                return error
            return None

        def start() -> None:
            task = self._loop.create_task(guarded())
            task.add_done_callback(lambda done: ended(None if done.cancelled() else done.result()))

        self.call(start)

    def create_task(self, coroutine: Any, name: str) -> asyncio.Task[Any]:
        """Start a coroutine; in the loop's thread."""
        return self._loop.create_task(coroutine, name=name)

    def call_at(self, when: float, function: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Have the loop call `function` at a moment of the monotonic clock; in the loop's thread."""
        return self._loop.call_at(when, function, *args)

    def stop(self) -> None:
        """Cancel what runs, give it a moment, end the thread. Safe to call again."""
        self.call(self._loop.stop)
        self._thread.join(2 * ENDS_WITHIN)

    def _run(self) -> None:
        self.turn.acquire()
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException as error:
            for told in self.on_broken:
                told(error)
        try:
            self._loop.run_until_complete(self._end())
            self._loop.close()
        except BaseException as error:
            logger.error("the loop of async services did not end well: %r", error)
        self.turn.release()

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=ENDS_WITHIN)
        await self._loop.shutdown_asyncgens()
