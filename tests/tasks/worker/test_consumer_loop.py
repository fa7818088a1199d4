"""Tests of the consumer loop on a broker in memory: how calls of each form end, also under faults."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import amqp
import pytest
import redis
from celery.worker import state as worker_state
from support.hostile import at_random
from support.serving_in_memory import TOPOLOGY, InMemoryServing
from support.waiting import PATIENCE, until

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.messages import DIRECT_REPLY, NO_LINKS
from tasks.service import Worker, service
from tasks.worker import consumer_loop, intake, timers
from tasks.worker.consumer_loop import ConsumerLoop
from warren.errors import BrokerError, ClaimGone, ClaimUsed, ConfigurationError


class Adder(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.go, self.ran = threading.Event(), list[Any]()

    @service
    def add(self, a: int, b: int = 1) -> int:
        return a + b

    @service
    def block(self) -> str:
        self.ran.append("block")
        assert self.go.wait(PATIENCE)
        return "went on"

    @service(batch=3, gather="exactly")
    def trio(self, numbers: list[int]) -> list[int]:
        self.ran.append(list(numbers))
        return numbers

    @service(response=False)
    def push(self, key: str) -> None:
        self.ran.append(key)

    @service(retries=0)
    def once(self, key: str) -> str:
        self.ran.append(key)
        if key == "block":
            assert self.go.wait(PATIENCE)
        return key

    @service(response=False, retries=0)
    def push_once(self, key: str) -> None:
        self.ran.append(key)
        if key == "block":
            assert self.go.wait(PATIENCE)

    @service(response=False)
    def leave(self, status: int) -> None:
        sys.exit(status)


@pytest.fixture
def adder() -> Adder:
    return Adder()


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch, adder: Adder) -> Iterator[InMemoryServing]:
    found = InMemoryServing(monkeypatch, adder)
    yield found
    adder.go.set()
    found.loop.stop()


def properties(headers: dict[str, Any], **more: str) -> bytes:
    fields = frames.table(headers)
    flags = frames.HEADERS | (frames.CORRELATION_ID | frames.REPLY_TO if more else 0)
    raw = flags.to_bytes(2, "big") + len(fields).to_bytes(4, "big") + fields
    return raw + (frames.short(more["correlation_id"]) + frames.short(more["reply_to"]) if more else b"")


UNREADABLE = b"\xff\xff\xff"
GOOD = codec.encode(((1,), {}, NO_LINKS))
MALFORMED: dict[str, tuple[Any, bytes]] = {
    "a number that expires": ({"id": "x", "expires": 5}, GOOD),
    "a list that expires": ({"id": "x", "expires": [1]}, GOOD),
    "a text that expires and is no moment": ({"id": "x", "expires": "soon"}, GOOD),
    "32 characters that are no moment": ({"id": "x", "expires": "z" * 32}, GOOD),
    "no id": ({}, GOOD),
    "an id that is a list": ({"id": ["x"]}, GOOD),
    "an embed that is a list": ({"id": "x"}, codec.encode(((1,), {}, [1]))),
    "an embed that is a text": ({"id": "x"}, codec.encode(((1,), {}, "links"))),
    "a chord that is a number": ({"id": "x"}, codec.encode(((1,), {}, {**NO_LINKS, "chord": 3}))),
    "a body that is a number": ({"id": "x"}, codec.encode(5)),
    "a body of two": ({"id": "x"}, codec.encode(((1,), {}))),
    "an empty body": ({"id": "x"}, b""),
    "no message of ours": ({"id": "x"}, b"hello"),
    "unreadable properties": (None, GOOD),
    "a group that is a number": ({"id": "x", "group": 7}, GOOD),
}


@pytest.mark.parametrize("what", MALFORMED)
@pytest.mark.parametrize("way", ["one-way", "direct", "by Celery"])
def test_a_malformed_message_is_refused_and_counted_and_the_next_call_is_answered(serving, adder, what, way):
    headers, body = MALFORMED[what]
    name = "adder.push" if way == "one-way" else "adder.add"
    reply_to = {"one-way": "", "direct": DIRECT_REPLY, "by Celery": "somebody"}[way]
    more = {"correlation_id": "c", "reply_to": reply_to} if reply_to else {}
    raw = UNREADABLE if headers is None else properties(headers, **more)
    serving.start()
    serving.send_raw(name, raw, body)
    assert serving.answer(serving.send("adder.add", 1, 2)) == ("", 3)
    if what == "a group that is a number" and way == "direct":
        return  # the group of a direct call is ignored
    until(lambda: serving.count(name, "refused") == 1)
    assert adder.ran == []
    if way == "one-way" and headers is not None:
        ((letter, reason),) = serving.dead
        assert letter.body == body and letter.key == name and reason
    if way == "direct" and headers is not None:
        kind, (error, message, _) = serving.answer("c")
        assert (kind, error) == ("failed", "warren.errors.CodecError") and "cannot be run" in message
    until(lambda: not serving.loop._outbox.held)


def test_a_reply_that_is_ready_does_not_wait_for_the_call_after_it(serving, adder):
    serving.declare()
    quick, slow = serving.send("adder.add", 1), serving.send("adder.block")
    serving.start()  # both arrive at once, before their durations are known
    assert serving.answer(quick) == ("", 2)
    assert not adder.go.is_set()
    adder.go.set()
    assert serving.answer(slow) == ("", "went on")


def test_exactly_counts_only_calls_that_somebody_still_waits_for(serving, adder):
    serving.start()
    expired = [serving.send("adder.trio", number, seconds=-5.0) for number in (-1, -2)]
    live = [serving.send("adder.trio", number) for number in (1, 2, 3)]
    assert [serving.answer(one) for one in live] == [("", 1), ("", 2), ("", 3)]
    assert adder.ran == [[1, 2, 3]]
    until(lambda: serving.count("adder.trio", "dropped") == 2)
    assert not set(expired) & set(serving.answers)


def test_a_stopping_worker_runs_no_incomplete_batch_and_returns_its_calls(serving, adder):
    serving.start()
    live = [serving.send("adder.trio", number) for number in (1, 2)]
    until(lambda: serving.count("adder.trio", "waiting") == 2)
    serving.loop.stop()
    assert adder.ran == []
    serving.loop = serving.new_loop()
    serving.start()
    live.append(serving.send("adder.trio", 3))
    assert [serving.answer(one) for one in live] == [("", 1), ("", 2), ("", 3)]  # no caller got a WorkerLost


def test_one_way_calls_of_a_stopped_worker_return_to_their_full_queue(serving, adder):
    serving.start()
    serving.send("adder.block")
    until(lambda: adder.ran == ["block"])
    for number in range(40):
        serving.send("adder.push", str(number), direct=False)
    until(lambda: not serving.waiting("adder.push"))
    serving.broker.block("low on memory")  # a republished message would be refused
    consumer_loop.FINISH_WITHIN, before = 0.0, consumer_loop.FINISH_WITHIN
    try:
        stopping = threading.Thread(target=serving.loop.stop)
        stopping.start()
        until(serving.loop._stopping.is_set)
        adder.go.set()
        stopping.join(PATIENCE)
    finally:
        consumer_loop.FINISH_WITHIN = before
        serving.broker.block("")
    ran = [key for key in adder.ran if key != "block"]
    assert len(ran) + len(serving.waiting("adder.push")) == 40


def test_sys_exit_in_a_service_ends_the_worker_and_its_message_is_delivered_again(serving):
    serving.start()
    serving.send("adder.leave", 3, direct=False)
    until(lambda: worker_state.should_stop)
    serving.loop._thread.join(PATIENCE)
    assert not serving.loop._thread.is_alive() and isinstance(serving.loop.failure, SystemExit)
    assert [message.redelivered for message in serving.waiting("adder.leave")] == [True]


def test_a_queue_with_other_arguments_ends_the_worker_with_one_clear_error(serving):
    serving.link.declare(TOPOLOGY.service_queue("adder.push", response=False, bound=7))
    serving.loop.start("worker@memory")
    until(lambda: worker_state.should_stop)
    serving.loop._thread.join(PATIENCE)
    assert isinstance(serving.loop.failure, ConfigurationError) and "adder.push" in str(serving.loop.failure)
    assert not serving.loop.ready.is_set()


def test_no_attempt_to_connect_leaves_a_connection_behind(serving, monkeypatch):
    attempts: list[int] = []

    def enter(specs: Any) -> None:
        attempts.append(len(serving.broker.connections))
        if len(attempts) < 4:
            raise OSError("away")

    serving.loop._consumption._directory.enter = enter
    monkeypatch.setattr(consumer_loop, "RECONNECT_AFTER", (0.01, 0.01))
    serving.start()
    assert attempts == [2, 2, 2, 2]  # the caller's connection and the worker's


def test_a_call_whose_body_cannot_be_fetched_is_tried_again(serving, adder, monkeypatch):
    decode, away = codec.decode, [True]

    def decode_or_fail(data: bytes) -> Any:
        if away.pop() if away else False:
            raise BrokerError("Redis is away")
        return decode(data)

    monkeypatch.setattr(timers, "AGAIN_AFTER", 0.05)
    monkeypatch.setattr(codec, "decode", decode_or_fail)
    serving.start()
    serving.send("adder.push", "kept", direct=False)
    until(lambda: adder.ran == ["kept"])
    assert serving.dead == [] and serving.count("adder.push", "refused") == 0


def held_by_a_killed_worker(serving: InMemoryServing, name: str) -> None:
    """Consume the calls of service `name` and disconnect, so that they are redelivered."""
    held = serving.broker.connect()
    held.consume(TOPOLOGY.service_queue(name).name, "held")
    until(held.drain)
    held.discard()


@pytest.mark.parametrize("error", [ClaimUsed, ClaimGone])
def test_only_a_call_with_a_used_claim_counts_as_done(serving, adder, monkeypatch, error):
    def gone(data: bytes) -> Any:
        raise error("claim 'x' is gone")

    monkeypatch.setattr(codec, "decode", gone)
    serving.declare()
    serving.send("adder.push", "done, or merely held", direct=False)
    held_by_a_killed_worker(serving, "adder.push")
    serving.start()

    def has_ended() -> bool:
        # Under the lock, a call that has not ended is in its queue or held by a connection.
        with serving.broker.lock:
            held = any(connection._unacked for connection in serving.broker.connections.values())
            return not held and not serving.waiting("adder.push")

    until(has_ended)
    lost = error is ClaimGone
    assert adder.ran == [] and len(serving.dead) == lost and serving.count("adder.push", "refused") == lost


def test_calls_that_cannot_be_counted_are_tried_again(serving, adder, monkeypatch):
    steps, away = serving.deliveries.steps, [True, True]

    def steps_or_error(*args: Any) -> Any:
        if away:
            away.pop()
            raise BrokerError("Redis is away")
        return steps(*args)

    monkeypatch.setattr(timers, "AGAIN_AFTER", 0.05)
    serving.deliveries.steps = steps_or_error
    serving.declare()
    serving.send("adder.push", "kept", direct=False)
    held_by_a_killed_worker(serving, "adder.push")  # the call is redelivered, so it must be counted
    serving.start()
    until(lambda: adder.ran == ["kept"])
    assert away == []


def lose_connections(serving: InMemoryServing) -> None:
    """Break every connection but the caller's."""
    with serving.broker.lock:
        for connection in list(serving.broker.connections.values()):
            if connection is not serving.link:
                connection.lose()


def test_calls_held_at_a_lost_connection_run_even_without_retries(serving, adder):
    serving.start()
    blocked = serving.send("adder.block")
    until(lambda: adder.ran == ["block"])
    serving.send("adder.push", "kept", direct=False)
    held, once = serving.send("adder.add", 1), serving.send("adder.once", "once")
    until(lambda: not any(map(serving.waiting, ("adder.push", "adder.add", "adder.once"))))
    lose_connections(serving)
    adder.go.set()
    until(lambda: "kept" in adder.ran)
    assert serving.answer(blocked) == ("", "went on") and serving.answer(held) == ("", 2)
    assert serving.answer(once) == ("", "once") and adder.ran.count("once") == 1
    assert adder.ran.count("block") == 2


def test_a_begun_direct_call_does_not_run_again_and_its_caller_gets_an_error(serving, adder):
    serving.start()
    begun = serving.send("adder.once", "block", seconds=60.0)
    until(lambda: adder.ran == ["block"])
    lose_connections(serving)
    adder.go.set()
    kind, (error, _, _) = serving.answer(begun)
    assert (kind, error) == ("failed", "warren.errors.DeliveriesExceeded") and adder.ran == ["block"]
    assert [ex for ex in serving.store.lasting.values() if not 60.0 <= ex <= 121.0] == []


def test_a_call_begun_by_three_dead_workers_fails_but_a_held_one_runs(serving, adder):
    serving.declare()
    fatal, innocent = serving.send("adder.add", 1), serving.send("adder.add", 2)
    held_by_a_killed_worker(serving, "adder.add")
    serving.deliveries.begin([fatal])
    serving.deliveries.begin([fatal])  # it kills two more workers
    serving.start()
    kind, (error, _, _) = serving.answer(fatal)
    assert (kind, error) == ("failed", "warren.errors.DeliveriesExceeded")
    assert serving.answer(innocent) == ("", 3)


def test_a_call_without_retries_runs_once_if_its_acknowledgement_is_lost(serving, adder):
    serving.declare()
    for number in range(9):
        serving.send("adder.push_once", str(number), direct=False)
    serving.send("adder.push_once", "block", direct=False)
    serving.start()  # all arrive at once; none is acknowledged before the last has returned
    until(lambda: "block" in adder.ran)
    lose_connections(serving)
    adder.go.set()
    serving.send("adder.push_once", "after", direct=False)
    until(lambda: "after" in adder.ran)
    until(lambda: not serving.waiting("adder.push_once") and not serving.loop._outbox.held)
    assert sorted(adder.ran) == sorted([*map(str, range(9)), "block", "after"]) and serving.dead == []


def test_a_call_without_retries_runs_once_if_it_is_published_twice(serving, adder):
    serving.start()
    serving.send("adder.push_once", "one", direct=False)
    until(lambda: adder.ran == ["one"])
    serving._ids._count -= 1
    serving.send("adder.push_once", "one", direct=False)
    serving.send("adder.push_once", "two", direct=False)
    until(lambda: adder.ran[-1:] == ["two"])
    assert adder.ran == ["one", "two"] and serving.dead == []


def test_calls_without_retries_wait_until_they_can_be_counted(serving, adder, monkeypatch):
    monkeypatch.setattr(timers, "AGAIN_AFTER", 0.05)
    serving.store.away = True
    serving.start()
    answered = serving.send("adder.once", "direct")
    serving.send("adder.push_once", "one-way", direct=False)
    retried = serving.send("adder.add", 1)
    assert serving.answer(retried) == ("", 2) and adder.ran == []
    serving.store.away = False
    assert serving.answer(answered) == ("", "direct")
    until(lambda: sorted(adder.ran) == ["direct", "one-way"])


# Celery calls with an ETA.


def moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def send_at(serving: InMemoryServing, name: str, key: Any, eta: Any, reply_to: str = "") -> None:
    headers = {"id": str(key), "task": name, "lang": "py", "eta": eta}
    more = {"correlation_id": str(key), "reply_to": reply_to} if reply_to else {}
    serving.send_raw(name, properties(headers, **more), codec.encode(((key,), {}, NO_LINKS)))


def test_a_call_with_an_eta_runs_when_it_is_due_and_others_before_it(serving, adder, monkeypatch):
    ahead = [0.0]  # s by which the worker's clock is
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], time=time.time)
    monkeypatch.setattr(consumer_loop, "time", clock)
    serving.start()
    send_at(serving, "adder.push", "past", moment(-5.0))
    until(lambda: adder.ran == ["past"])
    send_at(serving, "adder.push", "later", moment(600.0))
    serving.send("adder.push", "now", direct=False)
    until(lambda: adder.ran == ["past", "now"])
    ahead[0] = 300.0
    assert serving.answer(serving.send("adder.add", 1)) == ("", 2) and adder.ran == ["past", "now"]
    ahead[0] = 600.0
    until(lambda: adder.ran == ["past", "now", "later"])


def test_an_eta_too_late_for_any_worker_fails_the_call(serving, adder):
    serving.start()
    send_at(serving, "adder.push", "one-way", moment(3600.0))
    send_at(serving, "adder.add", 7, moment(3600.0), reply_to="a stock client")
    until(lambda: serving.app.backend.get_task_meta("7")["status"] == "FAILURE")
    assert "holds a call for 900 s at most" in str(serving.app.backend.get_task_meta("7")["result"])
    until(lambda: serving.dead)
    ((_, reason),) = serving.dead
    assert "its eta is 3" in reason and adder.ran == []


def test_calls_with_an_eta_leave_room_for_those_without(serving, adder):
    serving.start()
    for number in range(100):
        send_at(serving, "adder.push", f"later-{number}", moment(600.0))
    serving.send("adder.push", "now", direct=False)
    until(lambda: adder.ran == ["now"])
    until(lambda: serving.count("adder.push", "refused") == 100 - intake.MOST_HELD)


def test_a_worker_that_stops_gives_back_the_calls_that_wait_for_their_eta(serving, adder):
    serving.start()
    send_at(serving, "adder.push", "later", moment(600.0))
    until(lambda: serving.loop._queues["adder.push"].later)
    serving.loop.stop()
    assert len(serving.waiting("adder.push")) == 1 and adder.ran == []


def test_a_worker_that_cannot_reach_redis_consumes_no_calls(serving, monkeypatch):
    attempts: list[int] = []

    def enter(specs: Any) -> None:
        attempts.append(len(serving.waiting("adder.push")))
        if len(attempts) < 4:
            raise redis.ConnectionError("away")

    serving.loop._consumption._directory.enter = enter
    monkeypatch.setattr(consumer_loop, "RECONNECT_AFTER", (0.01, 0.01))
    serving.declare()
    serving.send("adder.push", "one", direct=False)
    serving.start()
    assert attempts == [1, 1, 1, 1]


def test_status_has_services_and_their_counts(serving):
    serving.start()
    assert serving.answer(serving.send("adder.add", 1)) == ("", 2)
    status = serving.loop.status()["services"]["adder.add"]
    assert (status["calls"], status["batches"], status["waiting"]) == (1, 1, 0)
    assert isinstance(serving.loop, ConsumerLoop)


def test_three_thousand_random_messages_each_end_once_and_calls_go_on(serving, adder):
    rng, sent = random.Random(20260102), 0
    serving.start()
    link = serving.loop._outbox.link
    for number in range(3000):
        name = rng.choice(["adder.add", "adder.push"])
        message = at_random(rng, name)
        serving.send_raw(name, amqp.Message(message.body, **message.properties)._serialize_properties(), message.body)
        sent += 1
        if number % 500 == 0:
            assert serving.answer(serving.send("adder.add", number)) == ("", number + 1)
            sent += 1
    ways = ("calls", "dropped", "refused")
    counts = lambda: [serving.count(name, way) for name in ("adder.add", "adder.push") for way in ways]  # noqa: E731
    until(lambda: sum(counts()) >= sent)
    until(lambda: not serving.loop._outbox.held)
    assert sum(counts()) == sent
    assert serving.loop._outbox.link is link, "it connected anew"
