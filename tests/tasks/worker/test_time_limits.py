"""Tests of services' time limits: the exception is raised in time, once, and only in code with a limit."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.serving_in_memory import InMemoryServing
from support.waiting import PATIENCE

from tasks.amqp.messages import FAILED
from tasks.retrying import RetryOn
from tasks.service import Worker, service
from tasks.worker import time_limits
from tasks.worker.time_limits import ENDED, limited
from warren.errors import ConfigurationError, TimeLimitExceeded

ROOT = Path(__file__).resolve().parents[3]


def spin(until: threading.Event | None = None) -> None:
    """Run Python code endlessly, or until `until` is set."""
    while until is None or not until.is_set():
        pass


class Shop(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.ran, self.now = 0, 0.0

    def spin_on(self) -> None:
        """Run endlessly, after a second on the clock of `own_clock`, which otherwise stands still."""
        self.now += 1.0
        spin()

    @service(time_limit=0.05)
    def spin(self) -> None:
        spin()

    @service(time_limit=0.05)
    def caught(self) -> str:
        try:
            spin()
        except Exception:
            return "as an Exception"
        except TimeLimitExceeded:
            return "by its name"
        return "never"

    @service(time_limit=0.05)
    async def wait(self) -> None:
        await asyncio.sleep(600.0)

    @service(time_limit=60.0)
    async def timed_out(self) -> None:
        raise TimeoutError("its own")

    @service(time_limit=0.05, batch=2, gather="exactly")
    def spin_at(self, numbers: list[int]) -> list[int]:
        if 1 in numbers:
            self.spin_on()
        return numbers

    @service(time_limit=0.05, retry_on=RetryOn(TimeLimitExceeded, backoff=0.01))
    def spin_once(self) -> int:
        self.ran += 1
        if self.ran == 1:
            self.spin_on()
        return self.ran

    @service(time_limit=60.0)
    def add(self, a: int) -> int:
        return a + 1


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def own_clock(monkeypatch, shop):
    """Measure limits by the shop's clock: only calls that spin take time, even on a busy machine."""
    monkeypatch.setattr(time_limits, "_watch", time_limits.Watch())
    monkeypatch.setattr(time_limits, "time", SimpleNamespace(monotonic=lambda: shop.now, sleep=time.sleep))


@pytest.fixture
def serving(monkeypatch, shop):
    found = InMemoryServing(monkeypatch, shop)
    found.start()
    yield found
    found.loop.stop(20.0)


@pytest.mark.parametrize("function", [spin, Shop.wait])
def test_limiting_a_function_uses_nothing_deprecated(function: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        assert inspect.iscoroutinefunction(limited("shop.spin", function, 1.0, None)) is (function is not spin)


@pytest.mark.parametrize("name", ["shop.spin", "shop.wait"])
def test_a_call_over_its_time_limit_fails_clearly_and_the_worker_goes_on(serving, name):
    kind, (error, message, _) = serving.answer(serving.send(name))
    assert (kind, error) == (FAILED, "warren.errors.TimeLimitExceeded")
    assert message == f"{name} ran for longer than its time limit of 0.05 s"
    assert serving.answer(serving.send("shop.add", 1)) == ("", 2)


def test_a_time_limit_is_caught_by_its_name_and_not_by_except_exception(serving):
    assert serving.answer(serving.send("shop.caught")) == ("", "by its name")


def test_a_services_own_timeout_is_not_taken_for_the_limit(serving):
    kind, (error, message, _) = serving.answer(serving.send("shop.timed_out"))
    assert (kind, error, message) == (FAILED, "TimeoutError", "its own")


def test_each_call_of_a_batch_over_its_limit_runs_alone_with_the_limit(own_clock, serving):
    slow, quick = serving.send("shop.spin_at", 1), serving.send("shop.spin_at", 2)
    assert serving.answer(slow)[0] == FAILED and serving.answer(quick) == ("", 2)


def test_a_call_that_took_too_long_may_be_tried_again(own_clock, serving):
    assert serving.answer(serving.send("shop.spin_once")) == ("", 2)


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_limits_that_end_about_when_their_function_does_leave_nothing_behind(quick_switches):
    """Each call has a result or TimeLimitExceeded, which is not raised later in code without a limit."""
    ended: dict[Any, int] = {}

    def work(number: int) -> int:
        for _ in range(number):
            pass
        return number

    for turn in range(3000):
        try:
            assert limited("actor.work", work, 1e-5 * (turn % 30), None)(turn % 4000) == turn % 4000
            found: Any = int
        except TimeLimitExceeded:
            found = TimeLimitExceeded
        ended[found] = ended.get(found, 0) + 1
    spare = threading.Event()
    threading.Timer(0.1, spare.set).start()
    spin(spare)  # a leftover exception would be raised here
    assert sum(ended.values()) == 3000 and len(ended) == 2, ended


def test_limits_of_several_threads_are_raised_in_their_own_thread(monkeypatch):
    monkeypatch.setattr(time_limits, "_watch", time_limits.Watch())
    told: dict[float, str] = {}

    def run(seconds: float) -> None:
        try:
            limited(f"actor.s{seconds}", spin, seconds, None)()
        except TimeLimitExceeded as error:
            told[seconds] = str(error)

    threads = [threading.Thread(target=run, args=(seconds,)) for seconds in (0.2, 0.05, 0.1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert told == {s: f"actor.s{s} ran for longer than its time limit of {s:g} s" for s in (0.05, 0.1, 0.2)}


HARD = """
import logging, time
from tasks.worker.time_limits import limited

logging.basicConfig()
def stubborn():
    time.sleep(600.0)   # in C
limited("actor.stubborn", stubborn, 0.05, 0.1)()
"""


def test_a_call_outside_python_code_ends_its_process_at_the_hard_limit():
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", HARD], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == ENDED and time.monotonic() - began < 120
    assert "actor.stubborn has passed its hard time limit" in ended.stderr and "in stubborn" in ended.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"time_limit": 0}, "time_limit=0: give a time"),
        ({"hard_time_limit": 3.0}, "give a shorter time_limit too"),
        ({"time_limit": 3.0, "hard_time_limit": 2.0}, "must be longer than time_limit=3.0"),
    ],
)
def test_invalid_limits_are_one_clear_error(given, told):
    with pytest.raises(ConfigurationError, match=told):
        service(**given)


def test_an_async_service_has_no_hard_limit():
    async def method(self: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="leave this out"):
        service(time_limit=1.0, hard_time_limit=2.0)(method)


def test_two_threads_that_set_the_first_alarms_at_once_start_one_watch(monkeypatch):
    """A second watch would ring each alarm again, and the second ring ends the process."""
    both, made = threading.Barrier(2), []

    class Met(threading.Thread):
        def __init__(self, **given: Any) -> None:
            made.append(given["name"])
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.5)  # both threads get here, unless one keeps the other waiting
            super().__init__(**given)

    watch = time_limits.Watch()
    alarm = time_limits.Alarm("a service", time_limits.NEVER, None)
    setting = [threading.Thread(target=watch.set, args=(alarm,)) for _ in range(2)]
    monkeypatch.setattr(time_limits.threading, "Thread", Met)
    for one in setting:
        one.start()
    for one in setting:
        one.join(PATIENCE)
    assert made == ["time-limits"]


def test_a_watch_that_could_not_start_starts_with_the_next_alarm(monkeypatch):
    watch = time_limits.Watch()
    monkeypatch.setattr(watch, "_run", lambda: None)
    alarm = time_limits.Alarm("a service", time_limits.NEVER, None)
    with monkeypatch.context() as out_of_threads:
        out_of_threads.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            watch.set(alarm)
    assert watch._thread is None
    watch.set(alarm)
    assert watch._thread is not None


def refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
