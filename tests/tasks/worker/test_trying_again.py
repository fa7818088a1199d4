"""Tests of retries after a service's exceptions: for each form of call, within its deadline and the worker's room."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.serving_in_memory import InMemoryServing
from support.waiting import until

from tasks.amqp.messages import FAILED
from tasks.middleware import Call, Middleware, current_call
from tasks.retrying import RetryOn
from tasks.service import Worker, service
from tasks.worker.timers import MOST_HELD

SOON = RetryOn(ConnectionError, times=3, backoff=0.01, longest=0.02)
LATE = RetryOn(ConnectionError, times=3, backoff=300.0, longest=600.0)


class Shop(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[Any] = Counter()

    def _try(self, key: Any, until_time: int) -> int:
        self.ran[key] += 1
        if self.ran[key] < until_time:
            raise ConnectionError(f"{key} is away")
        return self.ran[key]

    @service(retry_on=SOON)
    def fetch(self, key: str, until_time: int = 3) -> int:
        return self._try(key, until_time)

    @service(retry_on=SOON)
    async def fetch_async(self, key: str, until_time: int = 3) -> int:
        await asyncio.sleep(0)
        return self._try(key, until_time)

    @service(retry_on=SOON)
    def wrong(self, key: str) -> int:
        self.ran[key] += 1
        raise ValueError(key)

    @service(retry_on=SOON, batch=4, gather="exactly")
    def fetch_some(self, keys: list[str]) -> list[Any]:
        self.ran["batches"] += 1
        return [ConnectionError(key) if self._count(key) < 2 and key == "b" else key for key in keys]

    def _count(self, key: str) -> int:
        self.ran[key] += 1
        return self.ran[key]

    @service(response=False, retry_on=SOON)
    def push(self, key: str, until_time: int = 3) -> None:
        self._try(key, until_time)

    @service(response=False, retries=0, retry_on=SOON)
    def push_once(self, key: str, until_time: int = 3) -> None:
        self._try(key, until_time)

    @service(retry_on=LATE)
    def fetch_late(self, key: str) -> int:
        return self._try(key, 9)

    @service(response=False, retry_on=LATE)
    def push_late(self, key: int) -> None:
        self._try(key, 9)

    @service(retry_on=SOON)
    def tried(self) -> int:
        call = current_call()
        assert call is not None
        if call.tried < 2:
            raise ConnectionError
        return call.tried


@pytest.fixture
def serve(monkeypatch):
    made = []

    def start(*middleware: Middleware) -> InMemoryServing:
        made.append(InMemoryServing(monkeypatch, Shop(), middleware=middleware))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.loop.stop(20.0)


def ran(serving: InMemoryServing) -> Counter[Any]:
    found: Counter[Any] = serving._workers[0].ran  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("name", ["shop.fetch", "shop.fetch_async"])
def test_a_call_runs_again_until_it_returns(serve, name):
    serving = serve()
    assert serving.answer(serving.send(name, "x")) == ("", 3)
    until(lambda: serving.count(name, "calls") == 1)
    assert serving.count(name, "retried") == 2 and serving.count(name, "failed") == 0


@pytest.mark.parametrize("name", ["shop.fetch", "shop.fetch_async"])
def test_a_call_that_keeps_failing_fails_after_its_last_retry(serve, name):
    serving = serve()
    kind, (error, message, _) = serving.answer(serving.send(name, "x", 9))
    assert (kind, error, message) == (FAILED, "ConnectionError", "x is away")
    assert ran(serving)["x"] == 4


def test_other_exceptions_fail_at_once(serve):
    serving = serve()
    assert serving.answer(serving.send("shop.wrong", "x"))[0] == FAILED
    assert ran(serving)["x"] == 1


def test_only_the_failed_call_of_a_batch_runs_again(serve):
    serving = serve()
    ids = [serving.send("shop.fetch_some", key) for key in "abcd"]
    assert [serving.answer(one) for one in (ids[0], ids[2], ids[3])] == [("", "a"), ("", "c"), ("", "d")]
    more = [serving.send("shop.fetch_some", key) for key in "efg"]
    assert serving.answer(ids[1]) == ("", "b")
    assert [serving.answer(one) for one in more] == [("", key) for key in "efg"]
    assert ran(serving) == {**dict.fromkeys("acdefg", 1), "b": 2, "batches": 2}


@pytest.mark.parametrize("name", ["shop.push", "shop.push_once"])
def test_a_one_way_call_is_tried_again_and_ends_as_a_dead_letter_with_the_reason(serve, name):
    serving = serve()
    serving.send(name, "x", direct=False)
    until(lambda: serving.count(name, "calls") == 1)
    assert ran(serving)["x"] == 3 and serving.dead == []
    serving.send(name, "y", 9, direct=False)
    until(lambda: serving.count(name, "calls") == 2)
    ((letter, reason),) = serving.dead
    assert reason == "it failed 4 times, last with ConnectionError: y is away" and letter.key == name


def test_a_call_whose_deadline_precedes_its_retry_fails_at_once(serve):
    serving = serve()
    kind, (error, *_) = serving.answer(serving.send("shop.fetch_late", "x", seconds=30.0))
    assert (kind, error) == (FAILED, "ConnectionError") and ran(serving)["x"] == 1


def test_others_run_while_a_call_waits(serve):
    serving = serve()
    serving.send("shop.fetch_late", "x")
    assert serving.answer(serving.send("shop.fetch", "y", 1)) == ("", 1)
    assert serving.count("shop.fetch_late", "retried") == 1


def test_a_worker_holds_a_bounded_number_of_calls_and_others_fail_at_once(serve):
    serving = serve()
    ids = [serving.send("shop.fetch_late", number) for number in range(MOST_HELD + 2)]
    assert [serving.answer(one)[0] for one in ids[MOST_HELD:]] == [FAILED, FAILED]
    assert serving.count("shop.fetch_late", "retried") == MOST_HELD and len(serving.answers) == 2


def test_one_way_calls_wait_in_the_broker_while_a_worker_is_full(serve):
    serving = serve()
    for number in range(100):
        serving.send("shop.push_late", number, direct=False)
    until(lambda: serving.count("shop.push_late", "retried") == 64)
    assert len(serving.waiting("shop.push_late")) == 36 and serving.dead == []


def test_a_stopping_worker_requeues_the_calls_that_wait_for_a_retry(serve):
    serving = serve()
    serving.send("shop.push_late", 1, direct=False)
    until(lambda: serving.count("shop.push_late", "retried") == 1)
    serving.loop.stop(20.0)
    assert len(serving.waiting("shop.push_late")) == 1


def test_hooks_run_each_time_and_see_how_often_a_call_was_tried(serve):
    log = []

    class Told(Middleware):
        def before_run(self, call: Call) -> None:
            log.append(call.tried)

        def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
            log.append(result if error is None else type(error).__name__)

    serving = serve(Told())
    assert serving.answer(serving.send("shop.tried")) == ("", 2)
    assert log == [0, "ConnectionError", 1, "ConnectionError", 2, 2]
