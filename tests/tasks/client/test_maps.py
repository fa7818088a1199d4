"""Tests of maps of calls: arguments from items, and cancelled calls after a failure or an early end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from support.in_memory import ADD, PUSH, Directory, Service, declare, solver_of, take
from support.waiting import until

from tasks.client import solver as solvers
from tasks.solver import Args
from tasks.testing import InMemoryBroker
from warren.errors import DeadlinePassed


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def given(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


ITEMS = [1, (1, 2), Args(1, b=2), Args((1, 2)), Args()]
GIVEN = [[[1], {}], [[1, 2], {}], [[1], {"b": 2}], [[(1, 2)], {}], [[], {}]]


def test_an_item_is_a_value_a_tuple_of_them_or_arguments(broker):
    async def main() -> list[Any]:
        return [answer async for answer in solver.amap("actor.add", ITEMS)]

    with Service(broker, ADD, given), solver_of(broker) as solver:
        assert list(solver.map("actor.add", ITEMS)) == GIVEN
        assert asyncio.run(asyncio.wait_for(main(), 60.0)) == GIVEN


def test_a_map_whose_call_fails_cancels_the_others(broker):
    queue = declare(broker, ADD)
    with solver_of(broker) as solver:
        with pytest.raises(DeadlinePassed):
            list(solver.map("actor.add", range(100), in_flight=8, deadline=0.05))
        assert solver._client().under_way == 0
        assert len(broker.waiting(queue)) <= 16


def test_a_map_that_is_given_up_cancels_its_calls_by_one_message(broker):
    def answer(number: int) -> int:
        if number:
            until(lambda: solver.app.revoked, "the end of the map")
        return number

    with solver_of(broker) as solver, Service(broker, ADD, answer):
        for number in solver.map("actor.add", range(100), in_flight=8):
            assert number == 0
            break
        assert [len(ids) for ids in solver.app.revoked] == [8]
        assert solver._client().under_way == 0


def test_an_amap_whose_call_fails_cancels_the_others(broker):
    declare(broker, ADD)

    async def main() -> None:
        with pytest.raises(DeadlinePassed):
            async for _ in solver.amap("actor.add", range(100), in_flight=8, deadline=0.05):
                pass
        client = solver._local.bridge._client
        while client.under_way:
            await asyncio.sleep(0.001)

    with solver_of(broker) as solver:
        asyncio.run(asyncio.wait_for(main(), 60.0))


def test_an_amap_that_is_closed_cancels_its_calls(broker):
    async def main() -> None:
        results = solver.amap("actor.add", range(100), in_flight=8)
        assert await anext(results) == 0
        await results.aclose()
        client = solver._local.bridge._client
        while client.under_way:
            await asyncio.sleep(0.001)
        while not solver.app.revoked:
            await asyncio.sleep(0.001)

    def answer(number: int) -> int:
        if number:
            until(lambda: solver.app.revoked, "the end of the map")
        return number

    with solver_of(broker) as solver, Service(broker, ADD, answer):
        asyncio.run(asyncio.wait_for(main(), 60.0))


def test_a_map_of_one_way_calls_that_is_given_up_sends_begun_ones(broker):
    queue = declare(broker, replace(PUSH, bound=100))
    with solver_of(broker) as solver:
        results = solver.map("actor.push", range(100), in_flight=4)
        next(results)
        results.close()  # type: ignore[attr-defined]
        assert solver.flush() == 0 and solver.failed == 0 and not solver.app.revoked
    assert take(broker, queue, 4) == [0, 1, 2, 3]


def test_a_redeployed_service_is_called_by_its_new_settings(broker, monkeypatch):
    queue = declare(broker, ADD)
    with solver_of(broker) as solver:
        first = solver.send("actor.add", 1)
        solver._directory = Directory(replace(ADD, response=False))  # type: ignore[assignment]
        assert solver.send("actor.add", 1).spec == ADD, "the service was looked up at every call"
        solver._look_again_at = time.monotonic() - 1.0
        until(lambda: not solver.send("actor.add", 1).spec.response)
        assert solver.flush() == 0
        assert solvers.SPECS_LAST > 1.0 and not first.ended
    assert broker.waiting(queue)


def test_arguments_are_represented_as_written_in_a_call():
    assert repr(Args(1, "two", three=3)) == "Args(1, 'two', three=3)"
