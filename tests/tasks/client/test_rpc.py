"""Tests of a client on a broker in memory: answers, losses, refusals, alarms, and concurrent threads."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from support.in_memory import ADD, ONCE, PUSH, TOPOLOGY, Service, client_of, declare, solver_of, take
from support.waiting import until

from tasks.client.arguments import Args
from tasks.client.caretaker import caretaker
from tasks.testing import InMemoryBroker
from warren.errors import BrokerError, ConfigurationError, DeadlinePassed, NobodyServing, WorkerLost


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def add(one: int, other: int = 1) -> int:
    return one + other


def an_hour_passes(connector: Any, *moments: str) -> None:
    """Move moments that a connector noted into the past."""
    for moment in moments:
        setattr(connector, moment, getattr(connector, moment, 0.0) - 3600.0)


def test_a_call_is_answered_with_what_the_service_returns(broker):
    client = client_of(broker)
    with Service(broker, ADD, add):
        assert client.submit(ADD, (1,), {"other": 5}, 60.0).result() == 6
        handles = client.submit_all(ADD, [Args(number) for number in range(50)], 60.0)
        assert [handle.result() for handle in handles] == list(range(1, 51))
    assert client.under_way == 0


def test_a_dead_workers_call_is_resent_up_to_its_retries(broker):
    client = client_of(broker)
    with Service(broker, ADD, add, lost=True) as service:
        with pytest.raises(WorkerLost, match="after 2 more tries"):
            client.submit(ADD, (1,), {}, 60.0).result()
        assert len(service.taken) == 3
    with Service(broker, ONCE, add, lost=True), pytest.raises(WorkerLost, match="it may have run in part"):
        client.submit(ONCE, (1,), {}, 60.0).result()


def test_a_service_that_nobody_serves_is_an_error_when_patience_ends(broker):
    client = client_of(broker, patience=0.3)
    with pytest.raises(NobodyServing, match=r"no worker has served actor\.add"):
        client.submit(ADD, (1,), {}, 60.0).result()


def test_calls_outlive_cuts_of_the_connection_at_any_moment(broker):
    """A cut may come while a call is written, numbered, or waited for."""
    client, stop, often = client_of(broker), threading.Event(), replace(ADD, retries=1_000_000)
    answered = [0]

    def cut() -> None:
        pause, before = 0.003, -1
        while not stop.wait(pause):
            # On a busy machine, an answer may take longer than the time between two cuts.
            pause = 0.003 if answered[0] > before else min(2 * pause, 5.0)
            before = answered[0]
            broker.cut()

    with Service(broker, ADD, add):
        thread = threading.Thread(target=cut, daemon=True)
        thread.start()
        try:
            for number in range(100):
                assert client.submit(often, (number,), {}, 60.0).result() == number + 1
                answered[0] += 1
        finally:
            stop.set()
            thread.join()


def test_a_call_is_sent_again_after_as_many_cuts_as_it_has_retries(broker):
    client, queue = client_of(broker), declare(broker, ADD)
    declare(broker, ONCE)
    handle, once = client.submit(ADD, (1,), {}, 60.0), client.submit(ONCE, (1,), {}, 60.0)
    for cuts in range(1 + ADD.retries):
        until(lambda: client.look_for(0.0) or len(broker.waiting(queue)) == cuts + 1)  # noqa: B023
        assert not handle.ended and handle.retries == cuts
        broker.cut()
    with pytest.raises(WorkerLost, match=r"the connection to the broker broke .* after 2 more tries"):
        handle.result()
    with pytest.raises(WorkerLost, match="it may have run in part"):
        once.result()
    assert len(broker.waiting(queue)) == 1 + ADD.retries


def test_one_way_calls_that_must_not_run_twice_are_not_sent_again_at_a_reconnect(broker):
    once, queue = replace(PUSH, retries=0, bound=100), declare(broker, replace(PUSH, retries=0, bound=100))
    client = client_of(broker)
    assert client.submit(once, (0,), {}, None).result(60.0) is None
    with client._reading:  # no confirmation is read before the cut
        handle = client.submit(once, (1,), {}, None)
        broker.cut()
    assert isinstance(handle.exception(60.0), BrokerError)
    assert client.submit(once, (2,), {}, None).result(60.0) is None
    assert take(broker, queue, 3) == [0, 1, 2] and not broker.waiting(queue)
    assert client.table.failures.lost == 1


def test_results_may_be_waited_for_in_other_threads_while_more_is_sent(broker):
    client, results, errors = client_of(broker), list[int](), list[BaseException]()

    def wait(handle: Any) -> None:
        try:
            results.append(handle.result())
        except BaseException as error:
            errors.append(error)

    with Service(broker, ADD, add):
        threads = []
        for number in range(300):
            thread = threading.Thread(target=wait, args=(client.submit(ADD, (number,), {}, 60.0),), daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join(60.0)
    assert errors == [] and sorted(results) == list(range(1, 301))


def test_a_wait_ends_in_time_although_another_thread_reads_on(broker):
    client = client_of(broker)
    declare(broker, ADD)
    unlimited, limited = client.submit(ADD, (1,), {}, None), client.submit(ADD, (1,), {}, 0.01)
    with client._reading, ThreadPoolExecutor(2) as threads:
        waits, ends = threads.submit(unlimited.result, 0.01), threads.submit(limited.result)
        try:
            with pytest.raises(TimeoutError, match=r"has not answered within 0\.01 s"):
                waits.result(60.0)
            with pytest.raises(DeadlinePassed):
                ends.result(60.0)
        finally:
            client.table.fail_all(BrokerError("the test is over"))


def test_one_way_calls_that_are_lost_are_logged_counted_and_raised_by_flush(broker, caplog):
    broker.stop()
    solver = solver_of(broker, patience=0.3)
    with caplog.at_level(logging.ERROR, logger="tasks.client"):
        for number in range(100):
            solver.call("actor.push", number)
        with pytest.raises(BrokerError, match="100 one-way calls are lost; the first: the broker has been away"):
            solver.flush(60.0)
    assert solver.failed == 100
    assert "a one-way call of actor.push is lost" in caplog.text
    assert solver.flush() == 0, "flush raised them twice"


def test_a_refused_call_is_sent_again_while_its_sender_does_other_things(broker):
    client, queue = client_of(broker), declare(broker, PUSH)
    for number in range(3):  # one fits
        client.submit(PUSH, (number,), {}, None)
    assert sorted(take(broker, queue, 3)) == [0, 1, 2]
    until(lambda: not client.unconfirmed)


def test_calls_of_a_thread_that_has_ended_are_still_delivered(broker):
    solver, queue = solver_of(broker), declare(broker, PUSH)

    def send() -> None:
        for number in range(5):
            solver.call("actor.push", number)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert sorted(take(broker, queue, 5)) == [0, 1, 2, 3, 4]
    assert caretaker.flush(60.0) == 0


def test_one_way_calls_outlive_a_broker_that_goes_down_for_a_while(broker):
    client, queue = client_of(broker), declare(broker, PUSH)
    broker.stop()
    handle = client.submit(PUSH, (7,), {}, None)
    broker.up = True
    assert take(broker, queue, 1) == [7]
    assert handle.result(60.0) is None


def test_confirmations_settle_their_own_calls_when_threads_send_at_once(broker):
    """The broker numbers messages in order of arrival: threads must number and write them in the same order."""
    wide = type(PUSH)(PUSH.name, response=False, bound=10_000)
    client, queue = client_of(broker), declare(broker, wide)

    def send(start: int) -> None:
        for number in range(start, start + 200):
            client.submit(wide, (number,), {}, None)

    threads = [threading.Thread(target=send, args=(1000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: not client.unconfirmed)
    expected = {1000 * index + number for index in range(4) for number in range(200)}
    assert set(take(broker, queue, 800)) == expected


def test_a_connection_that_cannot_be_prepared_is_closed_with_its_error(broker):
    broker.host.exchanges[TOPOLOGY.service.name] = "topic"
    client = client_of(broker)
    with pytest.raises(ConfigurationError, match="is not of type direct"):
        client.submit(ADD, (1,), {}, 60.0).result()
    assert broker.connections == {}


def test_connections_that_break_while_they_are_prepared_are_not_left_behind(broker, monkeypatch):
    client = client_of(broker, patience=0.5)
    real = broker.connect

    def connect() -> Any:
        link = real()
        monkeypatch.setattr(link, "consume", lambda *_, **__: (_ for _ in ()).throw(ConnectionResetError("reset")))
        return link

    monkeypatch.setattr(broker, "connect", connect)
    with pytest.raises(BrokerError, match=r"away for .* s: reset"):
        client.submit(ADD, (1,), {}, 60.0).result()
    assert broker.connections == {}


@pytest.mark.parametrize("spec", [ADD, PUSH], ids=["with an answer", "one-way"])
def test_the_brokers_alarm_is_the_error_of_calls_that_it_does_not_take(broker, spec):
    declare(broker, spec)
    client = client_of(broker, patience=0.3)
    client.look_for(0.0)
    broker.block("low on memory")
    client.look_for(0.0)
    with pytest.raises(BrokerError, match=r"has taken no messages for .* s: low on memory; free some"):
        client.submit(spec, (1,), {}, None).result(60.0)


def test_an_outage_is_not_counted_from_an_earlier_one(broker):
    client = client_of(broker)
    broker.stop()
    client.submit(ADD, (1,), {}, None).cancel()
    client.look_for(0.0)
    an_hour_passes(client._connector, "_away_since", "_next_try")  # no call needs the broker: nobody sees it come back
    handle = client.submit(ADD, (1,), {}, None)
    client.look_for(60.0)
    assert not handle.ended
    broker.up = True
    with Service(broker, ADD, add):
        assert handle.result(60.0) == 2


def test_an_alarm_is_not_counted_from_an_earlier_one(broker):
    client = client_of(broker)
    with Service(broker, ADD, add):
        assert client.submit(ADD, (1,), {}, 60.0).result() == 2
        broker.block("low on memory")
        client._looked_at = 0.0
        client.look_for(0.0)
        an_hour_passes(client._connector, "_blocked_since", "_blocked_at")  # and nobody sees that the alarm ends
        handle = client.submit(ADD, (2,), {}, 60.0)
        client._looked_at = 0.0
        client.look_for(0.0)
        assert not handle.ended
        broker.block("")
        assert handle.result() == 3


def test_a_deadline_that_passes_during_an_alarm_says_so(broker):
    declare(broker, ADD)
    client = client_of(broker)
    client.look_for(0.0)
    broker.block("low on disk")
    with pytest.raises(DeadlinePassed, match="the broker takes no messages at the moment: low on disk"):
        client.submit(ADD, (1,), {}, 0.3).result()


def test_calls_made_during_an_alarm_are_sent_when_it_ends(broker):
    client = client_of(broker)
    with Service(broker, ADD, add):
        client.look_for(0.0)
        broker.block("low on memory")
        client.look_for(0.0)
        handle = client.submit(ADD, (1,), {}, 60.0)
        broker.block("")
        assert handle.result() == 2


def test_a_cancelled_call_ends_once_and_is_revoked_at_workers(broker):
    declare(broker, ADD)
    client = client_of(broker)
    handle = client.submit(ADD, (1,), {}, 60.0)
    assert handle.cancel() and not handle.cancel()
    assert client._app.revoked == [handle.id]


def test_a_map_of_one_way_calls_has_no_time_to_live(broker):
    queue = declare(broker, type(PUSH)(PUSH.name, response=False, bound=10_000))
    solver = solver_of(broker)
    assert list(solver.map("actor.push", range(20), in_flight=4)) == [None] * 20
    from tasks.amqp.frames import EXPIRATION

    flags = {int.from_bytes(message.properties[:2], "big") & EXPIRATION for message in broker.waiting(queue)}
    assert flags == {0} and len(broker.waiting(queue)) == 20


def test_a_map_with_none_in_flight_is_refused_at_once(broker):
    with pytest.raises(ConfigurationError, match="in_flight=0"):
        solver_of(broker).map("actor.add", [1, 2], in_flight=0)
