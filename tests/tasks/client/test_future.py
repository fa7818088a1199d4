"""Tests of handles as futures: callbacks, waits for several, awaiting, and exceptions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from typing import Any

import pytest
from support.in_memory import ADD, PUSH, Service, declare, solver_of
from support.waiting import until

from tasks.client.caretaker import caretaker
from tasks.testing import InMemoryBroker
from warren.errors import BrokerError, CallCancelled, DeadlinePassed


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def add(one: int) -> int:
    return one + 1


def test_a_callback_gets_the_handle_without_a_waiter(broker):
    found: list[Any] = []
    with Service(broker, ADD, add), solver_of(broker) as solver:
        handle = solver.send("actor.add", 1)
        handle.add_done_callback(found.append)
        until(lambda: found, "the callback")
        assert found == [handle] and handle.result() == 2
        handle.add_done_callback(found.append)
        assert found == [handle] * 2, "the callback of an ended call did not run at once"


def test_a_callback_may_wait_for_a_call_whose_answer_came_with_its_own(broker):
    found: list[Any] = []
    with Service(broker, ADD, add), solver_of(broker) as solver:
        first, second = solver.send("actor.add", 1), solver.send("actor.add", 2)
        until(lambda: len(solver._client().link._inbox) == 2, "both answers")
        first.when_ended(lambda ended: found.append((ended.result(), second.result())))
        assert first.result() == 2
    assert found == [(2, 3)]


def test_callbacks_of_calls_that_fail_are_called_as_well(broker):
    declare(broker, ADD)
    found: list[Any] = []
    with solver_of(broker) as solver:
        handle = solver.send("actor.add", 1, deadline=0.05)
        handle.add_done_callback(lambda ended: found.append(ended.exception()))
        until(lambda: found, "the deadline")
    assert isinstance(found[0], DeadlinePassed)


def test_a_callback_that_raises_is_logged_and_the_next_is_called(broker, caplog):
    found: list[Any] = []
    with Service(broker, ADD, add), solver_of(broker) as solver:
        handle = solver.send("actor.add", 1)
        with caplog.at_level(logging.ERROR, logger="tasks.client"):
            handle.when_ended(lambda _: 1 / 0)
            handle.when_ended(found.append)
            assert handle.result() == 2
    assert found == [handle] and "a callback of a call of actor.add failed" in caplog.text


def test_callbacks_added_while_calls_end_are_all_called_once(broker):
    called: list[int] = []
    with Service(broker, ADD, add), solver_of(broker) as solver:
        handles = [solver.send("actor.add", number) for number in range(500)]
        reading = threading.Thread(target=lambda: [handle.result() for handle in handles])
        reading.start()
        for number, handle in enumerate(handles):
            handle.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
        reading.join()
        until(lambda: len(called) == 500)
    assert sorted(called) == list(range(500))


def test_handles_work_with_what_concurrent_futures_offers(broker):
    with Service(broker, ADD, add), solver_of(broker) as solver:
        futures = {solver.send("actor.add", number).future(): number for number in range(100)}
        for future in concurrent.futures.as_completed(futures, timeout=60.0):
            assert future.result() == futures[future] + 1
        waited = concurrent.futures.wait([solver.send("actor.add", 1).future()], timeout=60.0)
        assert [one.result() for one in waited.done] == [2] and not waited.not_done
        until(lambda: solver._client() not in caretaker._clients, "the thread to let the client go")


def test_cancelling_the_future_of_a_handle_cancels_its_call(broker):
    declare(broker, ADD)
    with solver_of(broker) as solver:
        handle = solver.send("actor.add", 1)
        future = handle.future()
        assert future.cancel() and handle.cancelled() and future.cancelled()
        assert solver.app.revoked == [handle.id]
        assert isinstance(handle.exception(), CallCancelled)
        assert concurrent.futures.wait([future], timeout=60.0).done == {future}


def test_a_handle_can_be_awaited(broker):
    async def main() -> list[int]:
        handles = [solver.send("actor.add", number) for number in range(20)]
        return [await handle for handle in handles]

    with Service(broker, ADD, add), solver_of(broker) as solver:
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == list(range(1, 21))


def test_exception_returns_any_exception_of_a_call(broker):
    broker.stop()
    solver = solver_of(broker, patience=0.1)
    assert isinstance(solver.send("actor.add", 1).exception(), BrokerError)
    assert isinstance(solver.send("actor.push", 1).exception(60.0), BrokerError)


def test_exception_of_an_unfinished_call_raises_a_timeout(broker):
    declare(broker, ADD)
    with solver_of(broker) as solver:
        handle = solver.send("actor.add", 1)
        with pytest.raises(TimeoutError, match=r"actor\.add has not answered"):
            handle.exception(timeout=0.01)


def test_a_one_way_calls_callback_runs_once_the_broker_has_it(broker):
    declare(broker, PUSH)
    found: list[Any] = []
    with solver_of(broker) as solver:
        solver.send("actor.push", 1).add_done_callback(found.append)
        until(lambda: found, "the confirmation")
    assert found[0].result() is None
