"""Test of workers that start and stop under load: a new one takes its share at once, a stopped one loses nothing."""

from __future__ import annotations

import signal
import threading
import time
from typing import NamedTuple

from support.calling import Calling
from support.waiting import PATIENCE, until

CALLERS = 8
SECONDS = 0.005  # duration of a call


class Answer(NamedTuple):
    """One call: when it was sent and answered (time.monotonic), and the process that answered it."""

    sent_at: float
    answered_at: float
    pid: int


class Load:
    """Threads that call `actor.once`, which never runs twice, while the block runs."""

    def __init__(self, calling: Calling) -> None:
        self._calling, self._stop = calling, threading.Event()
        self.answers: list[Answer] = []
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def sent_after(self, moment: float) -> list[Answer]:
        """Return the answers to calls sent after `moment`, in the order of sending."""
        return sorted(answer for answer in self.answers if answer.sent_at > moment)

    def _call(self) -> None:
        while not self._stop.is_set():
            sent_at = time.monotonic()
            try:
                pid = self._calling.solver.call("actor.once", SECONDS)
                self.answers.append(Answer(sent_at, time.monotonic(), pid))
            except Exception as error:
                self.errors.append(error)


def test_a_worker_started_under_load_takes_its_share_and_stops_without_loss(calling: Calling) -> None:
    calling.start(1)
    first = calling.solver.call("actor.who")
    with Load(calling) as load:
        until(lambda: len(load.answers) > 200)
        (second,) = calling.start(1)
        ready = time.monotonic()
        until(lambda: len(load.sent_after(ready)) > 400)
        calls = load.sent_after(ready)[:400]
        # Of the first 400 calls sent once it was ready, it answers one of the first few, and about half.
        its_own = [answer for answer in calls if answer.pid == second.pid]
        assert its_own[0] in calls[: 4 * CALLERS]
        assert len(its_own) > len(calls) / 4
        waited, share = its_own[0].answered_at - ready, len(its_own) / len(calls)
        print(f"first answer {1e3 * waited:.0f} ms after it was ready, {share:.0%} of the calls sent from then on")

        calling.processes[0].send_signal(signal.SIGTERM)
        assert calling.processes[0].wait(PATIENCE) == 0
        stopped = time.monotonic()
        until(lambda: len(load.sent_after(stopped)) > 100)
    assert not load.errors
    assert {answer.pid for answer in load.sent_after(stopped)} == {second.pid} != {first}
