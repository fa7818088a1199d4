"""Tests of the end of a Solver and of its event loops: no connection or descriptor is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.contended import Contended
from support.in_memory import ADD, PUSH, Service, declare, solver_of, take
from support.waiting import until

from tasks.client import async_client
from tasks.client import solver as solvers
from tasks.client.rpc import Client
from tasks.testing import InMemoryBroker
from warren.errors import BrokerError


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def add(one: int) -> int:
    return one + 1


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give one-way calls of a closing Solver the time that a busy machine may need."""
    for module in (async_client, solvers):
        monkeypatch.setattr(module, "CLOSE_WITHIN", 60.0)


def test_event_loops_that_end_leave_no_descriptor_and_no_connection(broker):
    with Service(broker, ADD, add), solver_of(broker) as solver:
        for number in range(3):
            assert asyncio.run(solver.acall("actor.add", number)) == number + 1
        before = descriptors()
        for number in range(100):
            assert asyncio.run(solver.acall("actor.add", number)) == number + 1
        assert descriptors() <= before
        assert len(broker.connections) == 1, "more than the service's own connection is left"


def test_a_loop_closed_with_open_generators_is_cleaned_up_by_the_next(broker):
    def turn(number: int) -> int:
        loop = asyncio.new_event_loop()
        try:
            answer: int = loop.run_until_complete(solver.acall("actor.add", number))
            return answer
        finally:
            loop.close()

    with Service(broker, ADD, add), solver_of(broker) as solver:
        assert [turn(number) for number in range(20)] == list(range(1, 21))
        until(lambda: len(broker.connections) <= 2, "the connections of 19 loops to be closed")


def test_one_loop_keeps_its_connection_though_another_runs_in_between(broker):
    loops = [asyncio.new_event_loop() for _ in range(2)]
    with Service(broker, ADD, add), solver_of(broker) as solver:
        for number in range(6):
            assert loops[number % 2].run_until_complete(solver.acall("actor.add", number)) == number + 1
        assert len(broker.connections) == 3
        for loop in loops:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        until(lambda: len(broker.connections) == 1)


def test_a_solver_that_is_closed_has_no_connection_and_refuses_calls(broker):
    with Service(broker, ADD, add):
        with solver_of(broker) as solver:
            assert solver.call("actor.add", 1) == 2
            other = threading.Thread(target=solver.call, args=("actor.add", 1))
            other.start()
            other.join()
        assert len(broker.connections) == 1
        for call in (solver.call, solver.send):
            with pytest.raises(BrokerError, match="the Solver was closed"):
                call("actor.add", 1)

        async def later() -> None:
            await solver.acall("actor.add", 1)

        with pytest.raises(BrokerError, match="the Solver was closed"):
            asyncio.run(later())


def test_calls_under_way_fail_when_their_solver_is_closed_from_another_thread(broker):
    declare(broker, ADD)
    solver = solver_of(broker)
    handle = solver.send("actor.add", 1)
    closing = threading.Thread(target=solver.close)
    closing.start()
    with pytest.raises(BrokerError, match="the Solver was closed"):
        handle.result()
    closing.join()


def test_a_client_that_a_thread_makes_while_its_solver_is_closed_is_closed_too(broker, monkeypatch):
    solver, making, go_on = solver_of(broker), threading.Event(), threading.Event()
    solver._entering = lock = Contended()  # type: ignore[assignment]

    class Slow(Client):
        def __init__(self, *given: Any, **named: Any) -> None:
            making.set()
            assert go_on.wait(60.0)
            super().__init__(*given, **named)

    def close() -> None:
        solver.close()
        lock.came.set()

    monkeypatch.setattr(solvers, "Client", Slow)
    with ThreadPoolExecutor(2) as threads:
        made = threads.submit(solver._client)
        assert making.wait(60.0)
        closing = threads.submit(close)
        assert lock.came.wait(60.0)
        go_on.set()
        closing.result(60.0)
        assert made.result(60.0).closed


def test_threads_may_make_clients_while_those_of_a_solver_are_listed(broker, monkeypatch):
    solver = solver_of(broker)
    solver._entering = lock = Contended()  # type: ignore[assignment]

    def make() -> None:
        solver._client()
        lock.came.set()

    class Clients(weakref.WeakSet[Any]):
        def __iter__(self) -> Iterator[Any]:
            for client in super().__iter__():
                makes.append(threads.submit(make))
                assert lock.came.wait(60.0)
                yield client

    with ThreadPoolExecutor(1) as threads:
        makes: list[Future[None]] = []
        monkeypatch.setattr(solver, "_clients", Clients([solver._client()]))  # a fork in a later test lists them too
        assert solver.failed == 0
        makes[0].result(60.0)


def test_a_child_that_closes_its_solver_leaves_its_parents_calls_alone(broker):
    queue = declare(broker, PUSH)
    with solver_of(broker) as solver:
        handles = [solver.send("actor.push", number) for number in range(3)]
        until(lambda: solver._client().unconfirmed == 2)  # no more have room
        with broker.lock:  # free in the child
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            status = 1
            try:
                solver.close()
                status = int(any(handle.ended for handle in handles[1:]))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sorted(take(broker, queue, 3)) == [0, 1, 2]


def test_one_way_calls_arrive_before_their_solver_is_closed(broker, patient):
    queue = declare(broker, PUSH)  # one fits
    taken: list[Any] = []
    taker = threading.Thread(target=lambda: taken.extend(take(broker, queue, 5)))
    with solver_of(broker) as solver:
        for number in range(5):
            solver.call("actor.push", number)
        taker.start()
    taker.join()
    assert sorted(taken) == list(range(5)) and solver.failed == 0


def test_one_way_calls_of_a_loop_arrive_before_it_ends(broker, patient):
    queue = declare(broker, replace(PUSH, bound=1000))
    taken: list[Any] = []
    taker = threading.Thread(target=lambda: taken.extend(take(broker, queue, 300)))
    taker.start()

    async def main() -> None:
        async with solver_of(broker) as solver:
            for number in range(300):  # more than may be unconfirmed
                solver.asend("actor.push", number)

    asyncio.run(asyncio.wait_for(main(), 60.0))
    taker.join()
    assert sorted(taken) == list(range(300))


def test_an_asynchronous_solver_ends_with_its_block(broker):
    async def main() -> int:
        async with solver_of(broker) as solver:
            answer: int = await solver.acall("actor.add", 1)
        assert len(broker.connections) == 1
        return answer

    with Service(broker, ADD, add):
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == 2


def test_closing_a_solver_fails_calls_of_a_loop_in_another_thread(broker):
    declare(broker, ADD)
    solver, began = solver_of(broker), threading.Event()
    errors: list[Exception] = []

    async def main() -> None:
        solver._find("actor.add")
        future = solver.asend("actor.add", 1)
        began.set()
        try:
            await future
        except BrokerError as error:
            errors.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(asyncio.wait_for(main(), 60.0)))
    thread.start()
    assert began.wait(60.0)
    solver.close()
    thread.join()
    assert "the Solver was closed" in str(errors[0])
