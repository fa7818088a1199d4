"""Time limits of services: an exception in the thread that runs one, and, where that does not help, the worker's end.

The exception is raised between two steps of Python code. Code in C (a sleep, a wait for a socket, one long operation on
arrays) is not interrupted: the exception is raised when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from celery.utils.log import get_logger

from tasks import compat
from warren.errors import TimeLimitExceeded

logger = get_logger(__name__)

NEVER = float("inf")
ENDED = 70  # exit status of a worker that a hard limit ended: EX_SOFTWARE of sysexits.h


class Alarm:
    """A limit on what a thread runs. `due`: on the monotonic clock. `hard`: s from it to the process's end, or None.

    The thread takes no lock to end the alarm: an exception that came while it held one would leave that locked. Each
    side writes before it reads what the other has written. So either the watch sees that the alarm is `over`, or the
    thread sees that it was `fired`, and waits until the watch has decided.
    """

    def __init__(self, service: str, due: float, hard: float | None) -> None:
        self.thread, self.due = threading.get_ident(), due
        self._service, self._hard = service, hard
        self.over = self.fired = self._decided = False

    def ring(self) -> None:
        """Raise TimeLimitExceeded in the thread; at the second ring end the process. In the watch's thread."""
        if self.fired:
            self._end_process()
        self.fired = True
        if not self.over:
            _raise_in(self.thread, TimeLimitExceeded)
        self._decided = True
        self.due = float("inf") if self._hard is None else self.due + self._hard

    def end(self) -> None:
        """Ring no more, and drop an exception that is still to be raised. In the thread that it limits."""
        self.over = True
        if self.fired:
            while not self._decided:
                time.sleep(0.0001)
            _raise_in(self.thread, None)

    def _end_process(self) -> None:
        place = compat.stack_of(self.thread)
        if self.over:
            return
        logger.critical("this worker ends: %s has passed its hard time limit, and runs on at\n%s", self._service, place)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(ENDED)


class Watch:
    """A thread that rings alarms when they are due; it starts with the first. It keeps the newest of each thread."""

    def __init__(self) -> None:
        self._alarms: dict[int, Alarm] = {}
        self._wakes_at = NEVER
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # two threads would both ring an alarm, and a second ring ends the process

    def set(self, alarm: Alarm) -> None:
        """Ring this alarm of the calling thread when it is due, unless it is over by then."""
        if self._thread is None:
            self._start()
        self._alarms[alarm.thread] = alarm
        if alarm.due < self._wakes_at:  # seldom, where calls of one limit follow each other
            self._wake.put(None)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="time-limits", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            self._wakes_at = NEVER  # first: a thread that sets an alarm which is not seen below wakes this one
            for alarm in list(self._alarms.values()):
                if not alarm.over and alarm.due <= time.monotonic():
                    alarm.ring()
            self._wakes_at = min((one.due for one in list(self._alarms.values()) if not one.over), default=NEVER)
            with contextlib.suppress(queue.Empty):
                left = self._wakes_at - time.monotonic()
                self._wake.get(timeout=None if left == NEVER else max(left, 0.0))


_watch = Watch()
os.register_at_fork(after_in_child=lambda: _watch.__init__())  # type: ignore[misc] # a child has none of its threads


def limited(service: str, function: Callable[..., Any], seconds: float, hard: float | None) -> Callable[..., Any]:
    """Return a function that does as `function`, and raises TimeLimitExceeded after so many `seconds`.

    After `hard` s the process ends, if that still runs: it caught the exception, or is not in Python code.
    """
    message = f"{service} ran for longer than its time limit of {seconds:g} s"
    beyond = None if hard is None else hard - seconds
    if inspect.iscoroutinefunction(function):
        return _limited_in_loop(function, seconds, message)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        alarm = Alarm(service, time.monotonic() + seconds, beyond)
        try:
            try:
                try:
                    _watch.set(alarm)
                    return function(*args, **kwargs)
                finally:
                    alarm.end()
            finally:
                alarm.end()  # again, where the exception came within the first
        except TimeLimitExceeded as error:
            error.args = (message,)
            raise

    return run


def _limited_in_loop(function: Callable[..., Any], seconds: float, message: str) -> Callable[..., Any]:
    @wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await function(*args, **kwargs)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeLimitExceeded(message) from error

    return run


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    pending = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), pending)
