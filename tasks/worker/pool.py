"""The worker pool of every Warren role: one thread runs the tasks in order, the event loop stays free.

Celery's solo pool runs tasks inside the event loop: for as long as a rollout or an update lasts there are no
heartbeats, no remote control, no acknowledgements. Its thread pool frees the loop, but acknowledges from the pool's
thread, on a channel that is not thread-safe. In a child of its prefork pool torch hangs if the parent has used it.
Therefore this pool has one thread, and hands everything that touches the channel back to the event loop, which a byte
in a socket pair wakes at once.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import apply_target
from celery.utils.log import get_logger
from celery.worker import state

from tasks import compat
from tasks.worker.event_loop import EventLoop, Turn

logger = get_logger(__name__)

Job = Callable[[], None]
WAKE = b"\0"  # no signal's number
ENDED_BY_A_TASK = 1  # exit status of a worker in which a task called sys.exit

_newest: list[OneThreadPool] = []  # the pool of this process's worker


def stop_worker() -> None:
    """Ask this process's Celery worker for a warm stop, from any thread."""
    state.should_stop = 0
    for pool in _newest:
        pool.wake()


def end_worker(error: BaseException) -> None:
    """End this process's Celery worker, from any thread, since a task or service raised SystemExit or the like.

    Its message is not acknowledged: it is delivered again, and counted as one that its worker did not come back from.
    """
    logger.critical("this worker ends: a task or service raised %r", error, exc_info=error)
    state.should_stop = ENDED_BY_A_TASK


class _Last:
    """A job that a warm stop still does."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self) -> None:
        self._job()


class OneThreadPool(compat.Pool):
    """A Celery pool of one thread whose callbacks run in the event loop."""

    body_can_be_buffer = True
    signal_safe = False  # stop() waits for the running task: never inside a signal handler

    def on_start(self) -> None:
        self.limit = 1
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._finished: deque[Job] = deque()
        self.turn: Turn | None = None  # taken by services here while they share state with an event loop
        self._loop: EventLoop | None = None  # made when it is first needed
        self.finishes: list[Job] = []  # called when a warm stop begins, before anything else is done
        self._outstanding = 0  # jobs of the event loop that wait for something
        self._changed = threading.Condition()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        _newest[:] = [self]
        # The loop would otherwise go on polling after a signal's handler has run: for half a second, on average.
        self._listened_before = -1  # the descriptor that got signals before; `_drain` passes them on to it
        self._listens = threading.current_thread() is threading.main_thread()
        if self._listens:
            self._listened_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)
        self._thread.start()

    def register_with_event_loop(self, hub: Any) -> None:
        # Called anew after every reconnection, since a lost connection resets the hub.
        hub.add_reader(self._reader, self._drain)
        self.wake()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        error_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        def run() -> None:
            apply_target(
                target,
                args or (),
                kwargs,
                callback=self._in_loop(callback),
                accept_callback=self._in_loop(accept_callback),
                propagate=(SystemExit, KeyboardInterrupt),
            )

        self._jobs.put(partial(self._do, run, error_callback))

    def apply_last(self, function: Job) -> None:
        """Call `function` in the pool's thread, also in a warm stop, which begins no other jobs; from any thread."""
        self._jobs.put(_Last(partial(self._do, function, None)))

    def end(self, error: BaseException) -> None:
        """End this worker by `error`, as if a task had raised it; from any thread."""

        def fail() -> None:
            raise error

        self.apply_last(fail)

    def event_loop(self) -> EventLoop:
        """Return the event loop in which this worker's `async def` services and handlers run."""
        with self._changed:
            if self._loop is None:
                self._loop = EventLoop(self.end)
                self.turn = self._loop.turn
            return self._loop

    def call_soon(self, function: Job) -> None:
        """Call `function` in the event loop; from any thread."""
        self._finished.append(function)
        self.wake()

    def _do(self, run: Job, error_callback: Callable[..., Any] | None) -> None:
        try:
            run()
        except (SystemExit, KeyboardInterrupt) as error:
            end_worker(error)
            self.wake()
            raise
        except BaseException:
            logger.critical("a task failed outside its own code", exc_info=True)
            if error_callback is not None:
                self._in_loop(error_callback)(ExceptionInfo())

    def on_stop(self) -> None:
        """Let the running task finish, then run what it handed back: its acknowledgement has to be sent.

        Tasks that wait behind it are not begun: they go back to their queue.
        """
        # Celery begins a cold stop with an ordinary one of the pool; a thread cannot be made to end, nor waited for.
        warm = state.should_terminate is None or state.should_terminate is False
        for finish in self.finishes if warm and self._thread.is_alive() else ():
            finish()
        if self._loop is not None:
            self._loop.stop()
        last = []
        with contextlib.suppress(queue.Empty):
            while True:
                if isinstance(job := self._jobs.get_nowait(), _Last):
                    last.append(job)
        for job in (*last, None):
            self._jobs.put(job)
        if warm:
            self._thread.join()
        self._drain()
        if warm:
            with self._changed:
                self._changed.wait_for(lambda: not self._outstanding)
            self._drain()
        if self._listens:
            if threading.current_thread() is not threading.main_thread():
                return  # signals still go to these sockets: once closed, their numbers could become other files'
            signal.set_wakeup_fd(self._listened_before)
        self._reader.close()
        self._writer.close()

    def once(self, done: Future[Any], job: Job) -> None:
        """Run `job` in the event loop, which calls this, once `done` is done. A warm stop waits for it."""
        with self._changed:
            self._outstanding += 1

        def post(_: object) -> None:
            self._finished.append(job)
            self.wake()
            with self._changed:
                self._outstanding -= 1
                self._changed.notify_all()

        done.add_done_callback(post)

    def on_terminate(self) -> None:
        """Stop cold: do not wait for the running task; unacknowledged messages go back to the broker."""
        self._jobs.put(None)

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Log that a thread cannot be interrupted: its task runs on; after a cold stop it ends with the process."""
        logger.warning("a running task cannot be interrupted; it runs on until it returns or this process ends")

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self.terminated:
                return
            try:
                job()
            except (SystemExit, KeyboardInterrupt):
                return  # the tasks that still wait go back to their queue

    def _in_loop(self, callback: Callable[..., Any] | None) -> Callable[..., None]:
        def post(*args: Any) -> None:
            if callback is not None:
                self.call_soon(partial(callback, *args))

        return post

    def wake(self) -> None:
        """Wake the event loop at once; from any thread."""
        # Full: the loop is about to wake anyway. Closed: the worker has stopped.
        with contextlib.suppress(OSError):
            self._writer.send(WAKE)

    def _drain(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            while received := self._reader.recv(4096):
                if self._listened_before != -1 and (signals := received.replace(WAKE, b"")):
                    os.write(self._listened_before, signals)
        while self._finished:
            try:
                self._finished.popleft()()
            except Exception:  # raised out of the event loop it would end the worker
                logger.critical("a callback of a finished task failed", exc_info=True)

    def info_besides(self) -> dict[str, Any]:
        """See compat.Pool."""
        return {"max-concurrency": 1, "threads": 1}
