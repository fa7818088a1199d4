"""Tests of the count of a message's deliveries that dead workers had begun."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import redis
from celery.exceptions import Ignore, Reject, Retry

from tasks.app.outcome import Dropped, Failed, NotYet, outcome_of
from tasks.app.redelivery import DONE_FOR, Deliveries, Message, was_redelivered
from tasks.topology import Topology
from warren.errors import DeliveriesExceeded


@pytest.fixture
def deliveries(redis_url: str, run_name: str):
    topology = Topology(run_name)
    yield Deliveries(redis_url, topology)
    client = redis.Redis.from_url(redis_url)
    for key in client.scan_iter(f"{topology.key_prefix}*"):
        client.delete(key)


def die_at(deliveries: Deliveries, ids: list[str]) -> None:
    """Begin these deliveries without ending them, like a worker killed meanwhile."""
    deliveries.begin(ids)


def again(*ids: str) -> list[Message]:
    """Return messages that are redelivered."""
    return [Message(one, redelivered=True) for one in ids]


def first(*ids: str) -> list[Message]:
    """Return messages that are delivered for the first time."""
    return [Message(one, redelivered=False) for one in ids]


def echo(calls: list[Any]) -> list[Any]:
    return list(calls)


def test_a_message_is_given_up_after_its_limit_of_deliveries(deliveries):
    assert deliveries.numbers(["a"]) == [2]  # the first delivery was not counted
    die_at(deliveries, ["a"])
    assert deliveries.numbers(["a"]) == [3]
    assert deliveries.run("actor.push", 3, echo, ["A"], again("a")) == ["A"]
    die_at(deliveries, ["a"])
    die_at(deliveries, ["a"])
    (outcome,) = deliveries.run("actor.push", 3, echo, ["A"], again("a"))
    assert isinstance(outcome, Failed) and isinstance(outcome.error, DeliveriesExceeded)
    assert "message a for actor.push was delivered 3 times" in outcome.message


def test_a_run_that_ends_is_forgotten_whatever_its_outcome(deliveries):
    def fail(calls: list[Any]) -> list[Any]:
        raise ValueError("bad")

    for _ in range(5):
        assert deliveries.run("n", 3, echo, ["A"], again("a")) == ["A"]
        with pytest.raises(ValueError, match="bad"):
            deliveries.run("n", 3, fail, ["A"], again("a"))
    assert deliveries.numbers(["a"]) == [2]


def test_on_its_last_delivery_a_message_runs_alone(deliveries):
    groups: list[list[Any]] = []

    def note(calls: list[Any]) -> list[Any]:
        groups.append(list(calls))
        return list(calls)

    die_at(deliveries, ["a", "b"])
    messages = [*again("a"), *first("new"), *again("b", "c")]
    assert deliveries.run("n", 3, note, ["A", "new", "B", "C"], messages) == ["A", "new", "B", "C"]
    assert groups == [["A"], ["B"], ["new", "C"]]


def test_with_a_limit_of_one_a_begun_call_never_runs_again(deliveries):
    def die(calls: list[Any]) -> list[Any]:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        deliveries.run("n", 1, die, ["A"], first("a"))
    outcomes = deliveries.run("n", 1, echo, ["A", "held", "new"], [*again("a", "b"), *first("c")])
    assert isinstance(outcomes[0].error, DeliveriesExceeded) and outcomes[1:] == ["held", "new"]
    assert "delivered once" in outcomes[0].message


def test_with_a_limit_of_one_a_call_that_has_run_does_not_run_again(deliveries):
    assert deliveries.run("n", 1, echo, ["A"], first("a")) == ["A"]
    for messages in (again("a"), first("a")):  # after a lost acknowledgement, or published twice
        (outcome,) = deliveries.run("n", 1, echo, ["A"], messages)
        assert isinstance(outcome, Dropped) and isinstance(outcome.error, Ignore)


def test_with_a_limit_of_one_a_duplicate_in_a_batch_runs_once(deliveries):
    one, second = deliveries.run("n", 1, echo, ["A", "A"], first("a", "a"))
    assert one == "A" and isinstance(second, Dropped)


@pytest.mark.parametrize("error", [Reject("later", requeue=True), Retry("later")])
def test_with_a_limit_of_one_a_call_that_asks_for_redelivery_runs_again(deliveries, error):
    asked = outcome_of(error)
    assert deliveries.run("n", 1, lambda calls: [asked], ["A"], first("a")) == [asked]
    assert deliveries.run("n", 1, echo, ["A"], again("a")) == ["A"]


def test_with_a_limit_of_one_a_call_that_cannot_be_counted_waits(run_name):
    nowhere = Deliveries("redis://127.0.0.1:1/0", Topology(run_name))
    messages = [*again("a"), *first("b"), Message("c", redelivered=False, awaited=60.0)]
    outcomes = nowhere.run("n", 1, echo, ["A", "B", "C"], messages)
    assert all(isinstance(one, NotYet) and "must not run twice" in one.message for one in outcomes)


def test_an_awaited_call_is_given_up_once_begun_and_forgotten_once_expired(deliveries):
    for awaited, least, most in ((20.0, 60, 80), (math.inf, DONE_FOR - 5, DONE_FOR)):
        message, began = Message(f"a{awaited}", redelivered=False, awaited=awaited), time.monotonic()
        assert deliveries.run("n", 1, echo, ["A"], [message]) == ["A"]
        left = deliveries._redis.ttl(deliveries._prefix + message.id)
        assert least - (time.monotonic() - began) <= left <= most
        (outcome,) = deliveries.run("n", 1, echo, ["A"], [message])
        assert isinstance(outcome.error, DeliveriesExceeded)


def test_a_call_that_ends_its_worker_by_sys_exit_counts_as_deadly(deliveries):
    def die(calls: list[Any]) -> list[Any]:
        raise SystemExit(1)

    for _ in range(2):
        with pytest.raises(SystemExit):
            deliveries.run("n", 3, die, ["A"], again("a"))
    (outcome,) = deliveries.run("n", 3, echo, ["A"], again("a"))
    assert isinstance(outcome.error, DeliveriesExceeded)


def test_without_redis_a_message_is_delivered_once_more(run_name, caplog):
    nowhere = Deliveries("redis://127.0.0.1:1/0", Topology(run_name))
    assert nowhere.run("n", 3, echo, ["A"], again("a")) == ["A"]
    assert "cannot read how often" in caplog.text


@pytest.mark.parametrize(
    ("info", "headers", "expected"),
    [({"redelivered": True}, {}, True), ({}, {"redelivered": True}, True), ({"redelivered": False}, {}, False)],
)
def test_both_brokers_mark_redelivered_messages(info, headers, expected):
    assert was_redelivered(info, headers) is expected
    assert was_redelivered(None, None) is False
