"""Tests of outcomes: whatever a service does, each call ends once, be it direct, one-way or Celery's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject, Retry
from celery.worker import state as worker_state
from support.serving_in_memory import TOPOLOGY, InMemoryServing
from support.waiting import until

from tasks import codec
from tasks.service import Subscribed, Worker, service
from tasks.worker.event_inbox import EventInbox

STOCK = "a-stock-client"  # the reply_to of a call of Celery's own client
FILE_NAME = "no file \udcff"  # os.listdir returns such names for bytes that are not UTF-8


class Panic(BaseException):
    """An exception like pyo3's, which derives from BaseException."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Loud(Exception):
    def __str__(self) -> str:
        raise Panic


ERRORS: dict[str, Any] = {
    "cancelled": asyncio.CancelledError,
    "a panic": lambda: Panic("at the disco"),
    "generator exit": GeneratorExit,
    "no UTF-8": lambda: ValueError(FILE_NAME),
    "no UTF-8 in its arguments": lambda: OSError(2, "gone", FILE_NAME),
    "no words": Mute,
    "a panic for words": Loud,
    "recursion": lambda: RecursionError("deep"),
    "not to be pickled": type("Local", (Exception,), {"__reduce__": lambda self: 1 / 0}),
}


class Trouble(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[Any] = []
        self.raising: Any = ValueError

    @service
    def answer(self, key: str = "") -> str:
        self.ran.append(key)
        if key == "bad":
            raise self.raising()
        return key

    @service(response=False)
    def push(self, key: str) -> None:
        self.ran.append(key)
        if key == "bad":
            raise self.raising()

    @service(batch=4, gather="exactly")
    def four(self, keys: list[str]) -> list[Any]:
        return [self.raising() if key == "bad" else key for key in keys]

    @service(response=False, batch=8)
    def store(self, keys: list[str]) -> list[Any]:
        self.ran += keys
        return [None] * len(keys)


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch, trouble: Trouble) -> Iterator[InMemoryServing]:
    found = InMemoryServing(monkeypatch, trouble)
    found.start()
    found.first_link = found.loop._outbox.link
    yield found
    alive = found.loop._thread.is_alive()
    same = found.loop._outbox.link is found.first_link
    found.loop.stop()
    assert alive, "the services' thread has ended"
    assert same, "the worker reconnected"


def dead(serving: InMemoryServing) -> int:
    """Return the number of dead letters, with and without a reason in their header."""
    return len(serving.broker.waiting(TOPOLOGY.dead_queue("trouble").name)) + len(serving.dead)


def meta(serving: InMemoryServing, call_id: str) -> Any:
    return serving.app.backend.get_task_meta(call_id)


def settled(serving: InMemoryServing) -> None:
    """Check that a later call is answered and no message is held."""
    assert serving.answer(serving.send("trouble.answer", "after")) == ("", "after")
    outbox = serving.loop._outbox
    until(lambda: not outbox.held and not outbox.pending)  # refusals are written after answers


@pytest.mark.parametrize("what", ERRORS)
def test_any_exception_is_a_failure_for_a_direct_caller(serving, trouble, what):
    trouble.raising = ERRORS[what]
    kind, (_, message, traceback) = serving.answer(serving.send("trouble.answer", "bad"))
    assert kind == "failed" and isinstance(message, str) and isinstance(traceback, str)
    settled(serving)


@pytest.mark.parametrize("what", ERRORS)
def test_any_exception_makes_a_one_way_call_one_dead_letter(serving, trouble, what):
    trouble.raising = ERRORS[what]
    serving.send("trouble.push", "bad", direct=False)
    settled(serving)
    assert trouble.ran == ["bad", "after"] and dead(serving) == 1


@pytest.mark.parametrize("what", ERRORS)
def test_any_exception_fails_a_celery_call(serving, trouble, what):
    trouble.raising = ERRORS[what]
    call = serving.send("trouble.answer", "bad", reply_to=STOCK)
    until(lambda: meta(serving, call)["status"] == "FAILURE")
    settled(serving)
    assert trouble.ran == ["bad", "after"]


@pytest.mark.parametrize("what", ERRORS)
def test_a_bad_result_in_a_batch_leaves_the_other_calls_answered(serving, trouble, what):
    trouble.raising = ERRORS[what]
    calls = [serving.send("trouble.four", key) for key in ("a", "bad", "c", "d")]
    kinds = [serving.answer(call)[0] for call in calls]
    assert kinds == ["", "failed", "", ""]
    settled(serving)


def test_a_text_that_is_not_utf_8_reaches_the_caller_with_backslashes(serving, trouble):
    trouble.raising = ERRORS["no UTF-8"]
    kind, (name, message, traceback) = serving.answer(serving.send("trouble.answer", "bad"))
    assert (kind, name, message) == ("failed", "ValueError", r"no file \udcff") and r"\udcff" in traceback


def test_a_redelivered_failing_call_ends(serving, trouble):
    serving.loop.stop()
    trouble.raising = Mute
    serving.send("trouble.push", "bad", direct=False)
    held = serving.broker.connect()
    held.consume(TOPOLOGY.service_queue("trouble.push").name, "held")
    until(held.drain)
    held.discard()
    serving.loop = serving.new_loop()
    serving.start()
    serving.first_link = serving.loop._outbox.link
    settled(serving)
    assert trouble.ran == ["bad", "after"] and dead(serving) == 1 and serving.store.values == {}


def test_a_result_that_cannot_be_encoded_fails_its_call_alone(serving, trouble):
    class Odd(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise Panic

    for unsendable in (object(), FILE_NAME, Odd([1])):
        trouble.raising = lambda unsendable=unsendable: unsendable
        calls = [serving.send("trouble.four", key) for key in ("a", "bad", "c", "d")]
        answers = [serving.answer(call)[0] for call in calls]
        assert answers[0] == answers[2] == answers[3] == "" and (answers[1] == "failed" or type(unsendable) is Odd)
    settled(serving)


# Celery's exceptions that decide on a message.


def test_ignore_acknowledges_and_ends_a_direct_call(serving, trouble):
    trouble.raising = Ignore
    kind, (name, message, _) = serving.answer(serving.send("trouble.answer", "bad"))
    assert (kind, name) == ("failed", "celery.exceptions.Ignore") and "ignored" in message
    call = serving.send("trouble.answer", "bad", reply_to=STOCK)
    serving.send("trouble.push", "bad", direct=False)
    settled(serving)
    assert meta(serving, call)["status"] == "PENDING" and dead(serving) == 0
    assert serving.count("trouble.push", "failed") == 0


def test_reject_makes_a_dead_letter_and_fails_a_direct_call(serving, trouble):
    trouble.raising = lambda: Reject("no room")
    kind, (name, message, _) = serving.answer(serving.send("trouble.answer", "bad"))
    assert (kind, name) == ("failed", "celery.exceptions.Reject") and "no room" in message
    call = serving.send("trouble.answer", "bad", reply_to=STOCK)
    until(lambda: meta(serving, call)["status"] == "FAILURE")
    serving.send("trouble.push", "bad", direct=False)
    settled(serving)
    ((_, reason),) = serving.dead
    assert "no room" in reason


@pytest.mark.parametrize("way", ["direct", "by Celery", "one-way"])
def test_reject_with_requeue_runs_the_call_again(serving, trouble, way):
    left = [1, 1]

    def once_more() -> BaseException:
        if left.pop():
            left or left.append(0)
            return Reject("later", requeue=True)
        return ValueError("then it failed")

    trouble.raising = once_more
    name = "trouble.push" if way == "one-way" else "trouble.answer"
    call = serving.send(name, "bad", direct=way == "direct", reply_to=STOCK if way == "by Celery" else "")
    until(lambda: trouble.ran.count("bad") == 3)
    if way == "direct":
        assert serving.answer(call)[1][1] == "then it failed"
    elif way == "by Celery":
        until(lambda: meta(serving, call)["status"] == "FAILURE")
    settled(serving)
    assert trouble.ran == ["bad"] * 3 + ["after"] and dead(serving) == (way == "one-way")


def test_retry_is_a_failure_since_nobody_has_sent_the_call_again(serving, trouble):
    trouble.raising = lambda: Retry("in a while", when=1)
    kind, message, _ = serving.answer(serving.send("trouble.answer", "bad"))[1]
    assert kind == "celery.exceptions.Retry" and "sends nothing again here" in message
    call = serving.send("trouble.answer", "bad", reply_to=STOCK)
    until(lambda: meta(serving, call)["status"] == "FAILURE")
    serving.send("trouble.push", "bad", direct=False)
    settled(serving)
    assert dead(serving) == 1


# Calls of stock clients.


def test_a_one_way_call_of_celerys_that_fails_is_a_dead_letter(serving, trouble):
    serving.send("trouble.push", "bad", reply_to=STOCK)
    settled(serving)
    assert dead(serving) == 1


def test_a_failed_call_without_an_id_is_logged_as_gone(serving, trouble, caplog):
    serving.send("trouble.answer", "bad", direct=False)
    settled(serving)
    told = [record.getMessage() for record in caplog.records if record.name == "tasks.worker.outcomes"]
    assert told == ["a call of trouble.answer failed and named no reply address: it is lost"] and dead(serving) == 0


@pytest.mark.parametrize("why", ["expired", "revoked"])
def test_a_dropped_call_of_celerys_is_revoked(serving, trouble, monkeypatch, why):
    if why == "revoked":
        monkeypatch.setattr(worker_state, "revoked", {f"{serving._ids._prefix}{serving._ids._count + 1:012x}"})
    call = serving.send("trouble.answer", "bad", reply_to=STOCK, seconds=-5.0 if why == "expired" else None)
    until(lambda: meta(serving, call)["status"] == "REVOKED")
    assert why in str(meta(serving, call)["result"])
    settled(serving)
    assert trouble.ran == ["after"] and serving.count("trouble.answer", "dropped") == 1


def test_a_revoked_direct_call_fails_at_once(serving, trouble, monkeypatch):
    monkeypatch.setattr(worker_state, "revoked", {f"{serving._ids._prefix}{serving._ids._count + 1:012x}"})
    kind, (name, message, _) = serving.answer(serving.send("trouble.answer", "bad"))
    assert (kind, name) == ("failed", "celery.exceptions.TaskRevokedError") and "revoked" in message
    assert trouble.ran == []


# Code that is not the service's own.


def test_arguments_by_keyword_fail_their_own_call_of_a_batch_alone(serving, trouble):
    serving.loop.stop()
    for key in ("a", "b", "c"):
        serving.send("trouble.store", key, direct=False)
    serving.send("trouble.store", "bad", direct=False, by_keyword=True)
    serving.send("trouble.store", "d", direct=False)
    serving.loop = serving.new_loop()
    serving.start()
    serving.first_link = serving.loop._outbox.link
    until(lambda: serving.count("trouble.store", "calls") == 5)
    settled(serving)
    assert trouble.ran == ["a", "b", "c", "d", "after"] and dead(serving) == 1


def test_middleware_that_fails_fails_its_calls_and_nothing_else(serving, trouble, monkeypatch):
    queue = serving.loop._queues["trouble.four"]

    def broken(*_: Any) -> Any:
        raise Panic("around")

    monkeypatch.setattr(queue.chain, "run", broken)
    calls = [serving.send("trouble.four", key) for key in "abcd"]
    assert {serving.answer(call)[0] for call in calls} == {"failed"}
    queue = serving.loop._queues["trouble.answer"]
    after = queue.chain.after_run
    monkeypatch.setattr(queue.chain, "after_run", (*after, lambda *_: 1 / 0))
    settled(serving)


def test_an_event_handler_may_raise_anything(monkeypatch):
    class Listener(Worker):
        heard: list[str] = []

    def hear(payload: str) -> None:
        Listener.heard.append(payload)
        raise ERRORS[payload]()

    inbox = EventInbox(TOPOLOGY, SimpleNamespace(), [])
    from tasks.worker.event_inbox import Handler

    handler = Handler(hear, Subscribed("said", retained=False))
    for what in ERRORS:
        inbox._handle(handler, codec.encode(what))
    assert Listener.heard == list(ERRORS)
    for ends in (SystemExit, KeyboardInterrupt):
        ERRORS["ends"] = ends
        try:
            with pytest.raises(ends):
                inbox._handle(handler, codec.encode("ends"))
        finally:
            del ERRORS["ends"]
