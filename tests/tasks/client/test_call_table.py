"""Tests of the table of calls without a connection: each event moves a call to one state, and calls end once."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from support.in_memory import ADD, ONCE, PUSH, TOPOLOGY

from tasks import codec
from tasks.amqp import frames
from tasks.amqp.messages import FAILED, LOST, Replies
from tasks.amqp.parser import Content, Parser
from tasks.app.protocol import seconds_until
from tasks.client.call_frames import CallFrames
from tasks.client.call_table import ASK_AGAIN, REFUSED_FOR, CallTable
from tasks.client.future import Handle, State
from tasks.service import Spec
from warren.errors import BrokerError, CallCancelled, DeadlinePassed, RemoteFailure, WorkerLost

FRAME_MAX, CHANNEL, CONFIRMS = 4096, 1, 2
NOW = 1000.0
PUSH_ONCE = replace(PUSH, retries=0)


@pytest.fixture
def table() -> CallTable:
    table = CallTable(CallFrames(TOPOLOGY), patience=10.0)
    table.opened(CHANNEL, FRAME_MAX)
    table.confirm_on(CONFIRMS)
    return table


def call(call_id: str, spec: Spec = ADD, seconds: float | None = None) -> Handle:
    client: Any = None
    return Handle(client, spec, call_id.ljust(36, "."), b"body", seconds)


def sent(data: bytes) -> list[tuple[int, str]]:
    """Return (channel, id) of each call in these frames."""
    contents = [event for event in Parser(FRAME_MAX).feed(data) if isinstance(event, Content)]
    return [(one.channel, frames.read_properties(one.properties).correlation_id.rstrip(".")) for one in contents]


def answer(table: CallTable, one: Handle, value: Any = None, kind: str = "") -> bool:
    """Deliver a worker's answer; return whether the call took it."""
    data = b"".join(Replies(CHANNEL, FRAME_MAX).write("caller", one.id, codec.encode(value), kind))
    (content,) = (event for event in Parser(FRAME_MAX).feed(data) if isinstance(event, Content))
    return table.delivered(content.properties, content.body)


def test_a_call_that_waited_to_be_sent_expires_at_its_deadline(table):
    one = call("one", seconds=3600.0)
    table.send_later([one])
    (content,) = (event for event in Parser(FRAME_MAX).feed(table.send_due(one.deadline - 60.0, 1)))
    assert isinstance(content, Content)
    assert seconds_until(frames.read_properties(content.properties).headers["expires"]) <= 60.0


def test_a_call_is_sent_and_its_answer_ends_it(table):
    one = call("one")
    assert one.state is State.WAITING
    assert sent(table.send([one], NOW)) == [(CHANNEL, "one")] and one.state is State.SENT
    assert answer(table, one, 7) and one.state is State.ENDED and one.outcome() == 7
    assert not answer(table, one, 8), "an ended call took another answer"
    assert len(table) == 0 and one.outcome() == 7


def test_a_one_way_call_is_unconfirmed_until_the_broker_has_it(table):
    one = call("one", PUSH)
    assert sent(table.send([one], NOW)) == [(CONFIRMS, "one")]
    assert (one.state, table.unconfirmed) == (State.UNCONFIRMED, 1)
    table.confirmed(1, False, True, NOW)
    assert (one.state, table.unconfirmed, len(table)) == (State.ENDED, 0, 0)


def test_confirmations_of_several_end_those_up_to_their_number(table):
    calls = [call(str(number), PUSH) for number in range(5)]
    table.send(calls, NOW)
    table.confirmed(3, True, True, NOW)
    assert [one.state for one in calls] == [State.ENDED] * 3 + [State.UNCONFIRMED] * 2
    table.confirmed(9, True, True, NOW)
    assert table.unconfirmed == 0


def test_a_failure_with_its_message_ends_a_call(table):
    one = call("one")
    table.send([one], NOW)
    assert answer(table, one, ("ValueError", "words", "traceback"), FAILED)
    assert isinstance(one.failure, RemoteFailure) and one.failure.kind == "ValueError"


def test_a_dead_workers_call_waits_to_be_resent_up_to_its_retries(table):
    one = call("one")
    table.send([one], NOW)
    for turn in range(ADD.retries):
        assert answer(table, one, kind=LOST) and one.state is State.WAITING and one.retries == turn + 1
        assert sent(table.send_due(NOW, 10)) == [(CHANNEL, "one")]
    assert answer(table, one, kind=LOST)
    assert isinstance(one.failure, WorkerLost) and "after 2 more tries" in str(one.failure)


def test_each_lost_connection_costs_a_call_one_retry_and_no_more(table):
    one, once = call("one"), call("once", ONCE)
    table.send([one, once], NOW)
    assert [(lost, type(error)) for lost, error in table.lost()] == [(once, WorkerLost)]
    assert table.lost() and one.retries == 1, "a waiting call lost a retry"
    table.opened(CHANNEL, FRAME_MAX)
    table.send_due(NOW, 10)
    table.lost()
    assert one.retries == 2 and one.state is State.WAITING
    table.send_due(NOW, 10)
    assert {lost for lost, _ in table.lost()} == {one, once}


def test_one_way_calls_are_sent_again_after_a_loss_unless_they_may_run_once(table):
    again, never, unwritten = call("again", PUSH), call("never", PUSH_ONCE), call("unwritten", PUSH_ONCE)
    table.send([again, never], NOW)
    table.send_later([unwritten])
    ((lost, error),) = table.lost()
    assert lost is never and isinstance(error, BrokerError) and "with retries=0 it is not sent again" in str(error)
    table.fail(lost, error)
    assert table.failures.take() == (1, error)
    table.opened(CHANNEL, FRAME_MAX)
    assert table.send_due(NOW, 10) == b"", "one-way calls were sent before their channel was open"
    assert table.one_way_waiting()
    table.confirm_on(CONFIRMS)
    assert sent(table.send_due(NOW, 10)) == [(CONFIRMS, "unwritten"), (CONFIRMS, "again")]
    assert again.retries == 0 and not table.one_way_waiting()


def test_a_call_refused_by_a_full_queue_is_due_again_shortly(table):
    one = call("one", PUSH_ONCE)
    table.send([one], NOW)
    table.confirmed(1, False, False, NOW)
    assert one.state is State.WAITING and not table.due(NOW) and table.send_due(NOW, 10) == b""
    assert sent(table.send_due(NOW + REFUSED_FOR, 10)) == [(CONFIRMS, "one")]
    table.confirmed(2, False, True, NOW)
    assert one.state is State.ENDED and one.failure is None


def test_a_returned_one_way_call_is_not_ended_by_the_confirmation_that_follows(table):
    one = call("one", PUSH)
    table.send([one], NOW)
    assert table.returned(one.id, NOW) is None
    later = NOW + ASK_AGAIN
    table.send_due(later, 10)
    table.confirmed(1, False, True, later)  # the late confirmation of the returned message
    assert one.state is State.UNCONFIRMED
    table.confirmed(2, False, True, later)
    assert one.state is State.ENDED


def test_a_call_that_keeps_being_returned_is_unserved_when_patience_ends(table):
    one, now = call("one"), NOW
    table.send([one], now)
    while table.returned(one.id, now) is None:
        assert now - NOW < 10.0
        now += ASK_AGAIN
        assert sent(table.send_due(now, 10)) == [(CHANNEL, "one")]
    assert now - NOW == pytest.approx(10.0, abs=ASK_AGAIN)


def test_a_service_without_consumers_is_unserved_when_patience_ends(table):
    one = call("one")
    one.sent_at = NOW
    table.send([one], NOW)
    assert table.out_since(NOW) == set() and table.out_since(NOW + 1.0) == {ADD.name}
    assert table.counted(ADD.name, 0, NOW) == [] and table.counted(ADD.name, 0, NOW + 10.0) == [one]
    assert table.counted(ADD.name, 1, NOW + 11.0) == [] and ADD.name in table.served
    assert table.counted(ADD.name, 0, NOW + 12.0) == [], "patience was not counted from the last consumer on"


def test_a_deadline_ends_a_call_in_any_state_and_says_why(table):
    calls = [call("sent", seconds=5.0), call("waiting", seconds=5.0), call("in time", seconds=50.0)]
    for one in calls:
        one.deadline = NOW + (one.time_to_live or 0.0)
    table.send(calls[:1], NOW)
    table.send_later(calls[1:])
    table.expire(NOW + 5.0, blocked="low on memory")
    assert [type(one.failure) for one in calls] == [DeadlinePassed, DeadlinePassed, type(None)]
    assert "within 5 s; the broker takes no messages at the moment: low on memory" in str(calls[0].failure)
    assert table.send_due(NOW + 5.0, 10) and len(table) == 1


def test_a_cancelled_call_is_not_sent_again(table):
    one, two = call("one"), call("two")
    table.send([one, two], NOW)
    table.lost()
    assert table.cancel([one]) == [one.id] and table.cancel([one]) == []
    assert isinstance(one.failure, CallCancelled)
    assert sent(table.send_due(NOW, 10)) == [(CHANNEL, "two")]


def test_waiting_calls_are_sent_in_order_and_limited_in_number(table):
    calls = [call(str(number)) for number in range(5)]
    table.send_later(calls)
    assert table.due(NOW) and [one for _, one in sent(table.send_due(NOW, 3))] == ["0", "1", "2"]
    assert table.due(NOW) and [one for _, one in sent(table.send_due(NOW, 3))] == ["3", "4"]
    assert not table.due(NOW) and table.send_due(NOW, 3) == b""


def test_a_call_that_cannot_be_written_is_not_entered(table):
    long = call("long", replace(ADD, name="a" * 300))
    with pytest.raises(ValueError, match="300 bytes"):
        table.send([call("one"), long], NOW)
    assert len(table) == 0


def test_lost_one_way_calls_are_counted_and_not_kept(table, caplog, monkeypatch):
    monkeypatch.setattr("tasks.client.failures.LOG_EVERY", 3600.0)
    calls = [call(str(number), PUSH) for number in range(1000)]
    table.send(calls, NOW)
    error = BrokerError("away")
    for one in calls:
        table.fail(one, error)
    assert table.failures.lost == 1000 and caplog.text.count("is lost: away") == 1
    assert not any(isinstance(kept, list) for kept in vars(table.failures).values())
    assert table.failures.take() == (1000, error) and table.failures.take() == (0, None)


def test_calls_are_entered_and_ended_while_other_threads_iterate(table):
    calls = [call(str(number), PUSH if number % 2 else ADD) for number in range(3000)]
    ends: list[str] = []
    stop = threading.Event()

    def end() -> None:
        while not stop.is_set() or len(table):
            for one in table.sent():
                table.fail(one, WorkerLost(one.spec.name, "gone"))
            table.confirmed(1 << 60, True, True, NOW)
            table.expire(NOW)

    threads = [threading.Thread(target=end) for _ in range(3)]
    for thread in threads:
        thread.start()
    for one in calls:
        one.when_ended(lambda ended: ends.append(ended.id))
        table.send([one], NOW)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(ends) == len(set(ends)) == 3000 and table.unconfirmed == 0
