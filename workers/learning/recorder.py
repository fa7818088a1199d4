"""A thread that writes the results of updates: metrics, status, checkpoints."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from celery.utils.log import get_logger

from workers.runtime.timing import Timing

logger = get_logger(__name__)

MOST = 256  # actions that may wait; beyond it updates wait for the disk

Action = Callable[[], object]


class Recorder:
    """Runs the actions that it is given in order: at once, or on a thread once `start` was called.

    A failure stays in `trouble` until the same action has succeeded; also in `failing`, unless the action may fail. A
    failure on the thread is logged once.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._waiting: queue.Queue[tuple[str, Action] | None] = queue.Queue(MOST)
        self._failed: dict[str, str] = {}  # the action's name -> its error
        self._may_fail: set[str] = set()
        self._thread: threading.Thread | None = None

    @property
    def failing(self) -> str:
        """The error of an action that must not fail but failed the last time; "" if there is none."""
        return next((why for what, why in self._failed.copy().items() if what not in self._may_fail), "")

    @property
    def trouble(self) -> str:
        """The error of any action that failed the last time; "" if there is none."""
        return next(iter(self._failed.copy().values()), "")

    def start(self) -> None:
        """Run actions on a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def do(self, what: str, action: Action, may_fail: bool = False) -> None:
        """Run `action`, called `what` in messages, on the thread; without a thread run it now, raising its errors."""
        if may_fail:
            self._may_fail.add(what)

        def timed() -> None:
            with self._timing.stage(f"recorder: {what}"):
                action()

        if self._thread is None:
            self.do_now(what, timed)
        else:
            self._waiting.put((what, timed))

    def do_now(self, what: str, action: Action) -> None:
        """Run `action`, called `what` in messages, on the caller's thread; raise what it raises."""
        try:
            action()
        except Exception as error:
            self._failed[what] = f"could not {what}: {type(error).__name__}: {error}"
            raise
        if self._failed.pop(what, None) is not None:
            logger.info("could %s again", what)

    def stop(self) -> None:
        """Run the remaining actions and end the thread; later actions run at once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._waiting.put(None)
            thread.join()

    def _run(self) -> None:
        while (given := self._waiting.get()) is not None:
            what, action = given
            before = self._failed.get(what)
            try:
                self.do_now(what, action)
            except Exception:
                if self._failed[what] != before:  # once, not at each update: the log's disk may be full
                    logger.error("%s; trying again later", self._failed[what])
