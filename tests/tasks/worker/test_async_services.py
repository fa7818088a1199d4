"""Tests of `async def` services on a broker in memory: concurrent calls, their ends, and shared state."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject
from celery.worker import state as worker_state
from support.serving_in_memory import TOPOLOGY, InMemoryServing
from support.waiting import until

from tasks import codec
from tasks.amqp import frames
from tasks.app.protocol import seconds_until
from tasks.events.chunks import WINDOW
from tasks.middleware import Call, Middleware, current_call
from tasks.service import Worker, event_handler, service
from tasks.worker import async_services, consumer_loop
from warren.errors import CodecError, ConfigurationError


class Panic(BaseException):
    pass


class Waiter(Worker):
    """A worker whose `hold` keeps calls until `released` has their keys. Its counters need no locks."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.cancelled = list[Any](), list[Any]()
        self.gates: dict[Any, threading.Event] = {}
        self.released = set[Any]()
        self.total, self.batches = 0, list[list[int]]()
        self.stubborn = False
        self.left: asyncio.Task[None] | None = None

    async def wait_for(self, key: Any) -> None:
        self.began.append(key)
        try:
            while key not in self.released:
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            self.cancelled.append(key)
            if not self.stubborn:
                raise
            await asyncio.sleep(30.0)

    @service(concurrency=3)
    async def hold(self, key: Any) -> str:
        await self.wait_for(key)
        return f"held {key}"

    @service(concurrency=3)
    async def who(self, key: Any) -> str:
        await self.wait_for(key)
        call = current_call()
        assert call is not None and tuple(call.args) == (key,)
        return call.id

    @service(concurrency=3, retries=0)
    async def hold_once(self, key: Any) -> None:
        await self.wait_for(key)

    @service(concurrency=2, batch=4)
    async def hold_some(self, keys: list[Any]) -> list[Any]:
        self.batches.append(keys)
        await self.wait_for(tuple(keys))
        return keys

    @service(response=False, concurrency=3, retries=0)
    async def push_once(self, key: Any) -> None:
        await self.wait_for(key)

    @service(response=False, concurrency=3)
    async def push(self, key: Any) -> None:
        await self.wait_for(key)

    @service
    def add(self, a: int, b: int = 1) -> int:
        return a + b

    @service
    def count(self, times: int) -> int:
        for _ in range(times):
            before = self.total
            pass_the_gil()
            self.total = before + 1
        return times

    @service
    async def acount(self, times: int) -> int:
        for _ in range(times):
            before = self.total
            pass_the_gil()
            self.total = before + 1
            await asyncio.sleep(0)
        return times

    @service(batch=4)
    async def halves(self, numbers: list[int]) -> list[Any]:
        await asyncio.sleep(0)
        return [n // 2 if n % 2 == 0 else ValueError(f"{n} is odd") for n in numbers]

    @service(batch=4)
    async def inverses(self, numbers: list[int]) -> list[float]:
        await asyncio.sleep(0)
        return [1 / n for n in numbers]

    @service
    async def trouble(self, how: str) -> Any:
        self.began.append(how)
        await asyncio.sleep(0)
        if how == "requeue" and self.began.count(how) == 1:
            raise Reject("once more", requeue=True)
        errors = {
            "value": ValueError("words"), "cancelled": asyncio.CancelledError(), "panic": Panic("p"),
            "surrogate": ValueError("\udcff"), "ignore": Ignore(), "reject": Reject("no"), "stop": StopIteration(),
        }  # fmt: skip
        if how in errors:
            raise errors[how]
        return object() if how == "object" else how

    @service
    async def cancel_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1.0)

    @service
    async def leave(self, status: int) -> None:
        await asyncio.sleep(0)
        raise SystemExit(status)

    @service
    async def leave_in_a_task(self, status: int) -> None:
        async def leave() -> None:
            raise SystemExit(status)

        self.left = asyncio.create_task(leave())
        await asyncio.sleep(30.0)


def pass_the_gil() -> None:
    threading.Event().wait(0.0001)


@pytest.fixture
def waiter() -> Waiter:
    return Waiter()


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch, waiter: Waiter) -> Iterator[InMemoryServing]:
    found = InMemoryServing(monkeypatch, waiter)
    yield found
    found.loop.stop()


LONG = 600.0  # s; a call begins within it on any busy machine


def expire_in(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let calls with LONG s to live expire as if they had `seconds` s left when sent."""
    monkeypatch.setattr(async_services, "seconds_until", lambda moment: seconds_until(moment) - (LONG - seconds))


def test_as_many_calls_as_concurrency_run_at_once_and_are_answered_as_they_end(serving, waiter):
    serving.start()
    calls = {key: serving.send("waiter.hold", key) for key in range(5)}
    until(lambda: waiter.began == [0, 1, 2])
    assert serving.answer(serving.send("waiter.add", 1)) == ("", 2)  # other services go on
    assert serving.count("waiter.hold", "running") == 3
    waiter.released.add(1)
    assert serving.answer(calls[1]) == ("", "held 1")
    until(lambda: waiter.began == [0, 1, 2, 3])
    waiter.released |= set(range(5))
    assert {serving.answer(call)[1] for call in calls.values()} == {f"held {key}" for key in range(5)}
    until(lambda: not serving.loop._outbox.held)
    assert serving.count("waiter.hold", "calls") == 5 and serving.count("waiter.hold", "running") == 0


def test_a_worker_holds_twice_as_many_calls_as_it_runs(serving, waiter):
    serving.start()
    for key in range(20):
        serving.send("waiter.hold", key)
    until(lambda: len(waiter.began) == 3 and len(serving.waiting("waiter.hold")) == 14)
    waiter.released |= set(range(20))


def test_batches_run_concurrently_and_a_bad_call_fails_alone(serving, waiter):
    serving.declare()
    calls = [serving.send("waiter.hold_some", key) for key in range(10)]
    halves = [serving.send("waiter.halves", n) for n in (2, 3, 4)]
    inverses = [serving.send("waiter.inverses", n) for n in (1, 0, 4)]
    by_keyword = serving.send("waiter.halves", 2, by_keyword=True)
    serving.start()
    until(lambda: waiter.batches == [[0, 1, 2, 3], [4, 5, 6, 7]])
    waiter.released |= {(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)}
    assert [serving.answer(call)[1] for call in calls] == list(range(10))
    assert [serving.answer(call)[0] for call in halves] == ["", "failed", ""]
    assert [serving.answer(call)[0] for call in inverses] == ["", "failed", ""]
    assert serving.answer(by_keyword)[0] == "failed"


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("value", "ValueError"),
        ("cancelled", "asyncio.exceptions.CancelledError"),
        ("panic", "worker.test_async_services.Panic"),
        ("surrogate", "ValueError"),
        ("ignore", "celery.exceptions.Ignore"),
        ("reject", "celery.exceptions.Reject"),
        ("object", "warren.errors.CodecError"),
        ("stop", "RuntimeError"),
    ],
)
def test_an_exception_fails_its_call_and_the_next_is_answered(serving, how, kind):
    serving.start()
    failed, (found, *_) = serving.answer(serving.send("waiter.trouble", how))
    assert (failed, found.rpartition(".")[2]) == ("failed", kind.rpartition(".")[2])
    assert serving.answer(serving.send("waiter.trouble", "fine")) == ("", "fine")


def test_a_requeued_call_runs_again_and_one_that_cancels_itself_fails(serving, waiter):
    serving.start()
    assert serving.answer(serving.send("waiter.trouble", "requeue")) == ("", "requeue")
    assert waiter.began == ["requeue", "requeue"]
    assert serving.answer(serving.send("waiter.cancel_itself"))[1][0].endswith("CancelledError")


@pytest.mark.parametrize("name", ["waiter.leave", "waiter.leave_in_a_task"])
def test_system_exit_ends_the_worker_and_the_call_is_not_acknowledged(serving, waiter, name):
    serving.start()
    serving.send(name, 3)
    until(lambda: worker_state.should_stop == 1)
    until(lambda: not serving.loop._thread.is_alive())
    assert isinstance(serving.loop.failure, SystemExit)
    assert waiter.left is None or isinstance(waiter.left.exception(), SystemExit)
    assert [message.redelivered for message in serving.waiting(name)] == [True]


def test_a_call_past_its_deadline_is_cancelled_and_dropped(serving, waiter, monkeypatch):
    expire_in(monkeypatch, 0.05)
    serving.start()
    serving.send("waiter.hold", "late", seconds=LONG)
    until(lambda: waiter.cancelled == ["late"])
    until(lambda: serving.count("waiter.hold", "dropped") == 1)
    until(lambda: not serving.loop._outbox.held)
    assert serving.count("waiter.hold", "running") == 0 and serving.count("waiter.hold", "calls") == 0


def test_a_batch_runs_on_while_a_caller_waits_for_any_of_its_calls(serving, waiter, monkeypatch):
    expire_in(monkeypatch, 1.0)
    serving.declare()
    serving.send("waiter.hold_some", "soon", seconds=LONG)
    later = serving.send("waiter.hold_some", "later", seconds=2 * LONG)
    serving.start()
    until(lambda: waiter.batches == [["soon", "later"]])
    first_is_late = time.monotonic() + 1.0
    until(lambda: time.monotonic() > first_is_late)
    assert serving.answer(serving.send("waiter.acount", 2)) == ("", 2)
    assert waiter.cancelled == []
    waiter.released.add(("soon", "later"))
    assert serving.answer(later) == ("", "later")


def test_a_call_that_is_revoked_is_cancelled(serving, waiter):
    serving.start()
    call = serving.send("waiter.hold", "unwanted")
    other = serving.send("waiter.hold", "wanted")
    until(lambda: len(waiter.began) == 2)
    worker_state.revoked.add(call)
    try:
        serving.loop.revoked()
        assert serving.answer(call)[0] == "failed"
    finally:
        worker_state.revoked.discard(call)
    assert waiter.cancelled == ["unwanted"] and serving.count("waiter.hold", "dropped") == 1
    waiter.released.add("wanted")
    assert serving.answer(other) == ("", "held wanted")


def test_plain_and_async_services_share_state_without_locks(serving, waiter):
    serving.start()
    calls = [serving.send("waiter.acount", 200)]
    until(lambda: waiter.total > 10)
    calls += [serving.send("waiter.count", 200) for _ in range(2)]
    assert {serving.answer(call) for call in calls} == {("", 200)}
    assert waiter.total == 600


def test_a_stopping_worker_finishes_what_it_holds(serving, waiter, monkeypatch):
    monkeypatch.setattr(consumer_loop, "FINISH_WITHIN", LONG)
    serving.start()
    calls = [serving.send("waiter.hold", key) for key in range(5)]
    until(lambda: len(waiter.began) == 3)
    threading.Timer(0.3, waiter.released.update, (range(5),)).start()
    serving.loop.stop()
    assert [serving.answer(call)[1] for call in calls] == [f"held {key}" for key in range(5)]
    assert serving.waiting("waiter.hold") == []


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_stopping_worker_returns_running_calls_that_may_run_again(serving, waiter, monkeypatch, stubborn):
    monkeypatch.setattr(consumer_loop, "FINISH_WITHIN", 0.1)
    waiter.stubborn = stubborn
    serving.start()
    again, once = serving.send("waiter.hold", "again"), serving.send("waiter.hold_once", "once")
    serving.send("waiter.push", "pushed", direct=False)
    serving.send("waiter.push_once", "pushed once", direct=False)
    until(lambda: len(waiter.began) == 4)
    serving.loop.stop()
    until(lambda: sorted(waiter.cancelled) == ["again", "once", "pushed", "pushed once"])
    assert serving.answer(once)[0] == "lost"
    waiter.released |= {"again", "pushed"}
    assert len(serving.waiting("waiter.hold")) == 1
    assert not any(b"begun" not in mark for mark in serving.store.values.values())  # none counts as a worker's death
    serving.loop = serving.new_loop()
    serving.start()
    assert serving.answer(again) == ("", "held again")
    until(lambda: len(serving.dead) == 1)  # the begun one-way call, which may not begin again
    until(lambda: not serving.loop._outbox.held)
    assert waiter.began.count("pushed") == 2 and waiter.began.count("pushed once") == 1


def test_running_calls_are_cancelled_and_run_again_after_a_lost_connection(serving, waiter):
    serving.start()
    serving.send("waiter.push", "pushed", direct=False)
    serving.send("waiter.push_once", "once", direct=False)
    until(lambda: len(waiter.began) == 2)
    for connection in list(serving.broker.connections.values()):
        if connection is not serving.link:
            connection.lose()
    until(lambda: waiter.cancelled == ["pushed"])
    until(lambda: waiter.began.count("pushed") == 2)
    waiter.released |= {"pushed", "once"}
    until(lambda: serving.count("waiter.push", "running") == 0 == serving.count("waiter.push_once", "running"))
    until(lambda: not serving.loop._outbox.held)
    assert waiter.began.count("once") == 1


def test_calls_without_retries_are_marked_as_begun_and_as_done(serving, waiter):
    serving.start()
    call = serving.send("waiter.push_once", "key", direct=False)
    until(lambda: waiter.began == ["key"])
    (mark,) = [value for key, value in serving.store.values.items() if key.endswith(call)]
    assert mark.startswith(b"begun")
    waiter.released.add("key")
    until(lambda: [value for key, value in serving.store.values.items() if key.endswith(call)] == [b"done"])


def test_calls_without_retries_wait_while_redis_is_away(serving, waiter):
    serving.store.away = True
    serving.start()
    serving.send("waiter.push_once", "key", direct=False)
    until(lambda: serving.loop._queues["waiter.push_once"].later)
    assert waiter.began == []
    serving.store.away = False
    until(lambda: waiter.began == ["key"])
    waiter.released.add("key")


class Listener(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.heard, self.go = list[Any](), threading.Event()

    @service
    def ping(self) -> str:
        return "pong"

    @event_handler("said", retained=False, bound=1000)
    async def hear(self, payload: Any) -> None:
        while not self.go.is_set():
            await asyncio.sleep(0.002)
        self.heard.append(payload)
        if payload == "bad":
            raise Panic("heard")
        if payload == "end":
            raise SystemExit(1)


def test_an_async_handler_gets_one_event_at_a_time_with_a_bounded_backlog(monkeypatch):
    listener = Listener()
    serving = InMemoryServing(monkeypatch, listener)

    def fire(*payloads: Any) -> None:
        for payload in payloads:
            method = frames.publish_method(1, TOPOLOGY.event("said").name, "")
            body = codec.encode(payload)
            serving.link.send(b"".join([method, *frames.content(1, b"\x00\x00", body, serving.link.frame_max)]))

    serving.start()
    try:
        fire(*range(100))
        assert serving.answer(serving.send("listener.ping")) == ("", "pong")
        waiting = [len(queue.messages) for name, queue in serving.broker.host.queues.items() if ".event." in name]
        assert waiting[0] >= 100 - 2 * WINDOW
        listener.go.set()
        fire("bad", "after")
        until(lambda: listener.heard == [*range(100), "bad", "after"])
        serving.broker.cut()
        until(lambda: serving.loop.ready.is_set() and len(serving.broker.connections) == 1)
        serving.link = serving.broker.connect()
        until(lambda: fire("again") or "again" in listener.heard)
        fire("end")
        until(lambda: not serving.loop._thread.is_alive())
        assert isinstance(serving.loop.failure, SystemExit)
    finally:
        serving.loop.stop()


class Noted(Middleware):
    def __init__(self) -> None:
        self.log = list[Any]()

    def before_run(self, call: Call) -> None:
        self.log.append(("before", call.args))

    def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
        self.log.append(("after", call.args, result or type(error)))

    def after_drop(self, call: Call, reason: str) -> None:
        self.log.append(("dropped", call.args, reason))


def test_hooks_run_around_each_call_which_knows_itself_among_others(monkeypatch, waiter):
    expire_in(monkeypatch, 0.05)
    noted = Noted()
    serving = InMemoryServing(monkeypatch, waiter, middleware=[noted])
    try:
        serving.start()
        calls = [serving.send("waiter.who", key) for key in "ab"]
        late = serving.send("waiter.who", "late", seconds=LONG)
        until(lambda: len(waiter.began) == 3)
        until(lambda: waiter.cancelled == ["late"])
        waiter.released |= {"a", "b"}
        assert [serving.answer(call)[1] for call in calls] == calls
        until(lambda: not serving.loop._outbox.held)
    finally:
        serving.loop.stop()
    assert sorted(map(str, noted.log)) == sorted(map(str, [
        *(("before", (key,)) for key in ("a", "b", "late")), ("after", ("late",), asyncio.CancelledError),
        *(("after", (key,), call) for key, call in zip("ab", calls, strict=True)),
    ]))  # fmt: skip
    assert late not in serving.answers


def test_a_generator_is_refused_and_so_is_concurrency_for_a_plain_method():
    with pytest.raises(ConfigurationError, match="rows is a generator"):

        @service
        def rows(self: Any) -> Iterator[int]:
            yield 1

    with pytest.raises(ConfigurationError, match="lines is a generator"):

        @service(response=False)
        async def lines(self: Any) -> Any:
            yield 1

    with pytest.raises(ConfigurationError, match="heard is a generator"):

        @event_handler("said")
        def heard(self: Any, payload: Any) -> Any:
            yield payload

    with pytest.raises(ConfigurationError, match=r"concurrency=4: plain is not `async def`"):

        @service(concurrency=4)
        def plain(self: Any) -> None: ...

    for wrong in (0, -1, 40_000):
        with pytest.raises(ConfigurationError, match=f"concurrency={wrong}"):
            service(concurrency=wrong)
    with pytest.raises(ConfigurationError, match="concurrency=20000"):
        service(concurrency=20_000, batch=2)


def test_a_plain_method_that_returns_a_coroutine_fails_with_a_remedy():
    async def answer() -> int:
        return 1

    coroutine = answer()
    with pytest.raises(CodecError, match="async def"):
        codec.encode(coroutine)
    coroutine.close()
