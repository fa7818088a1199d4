"""Tests that every form of a call refuses an impossible deadline before it sends or enters anything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.in_memory import ADD, declare, solver_of

from tasks.client.deadline import MOST, checked
from tasks.testing import InMemoryBroker
from warren.errors import ConfigurationError

WRONG = [float("inf"), float("nan"), -1.0, 0, MOST + 1.0, 10**400, "soon"]


async def _gathered(solver: Any, deadline: Any) -> Any:
    return [one async for one in solver.amap("actor.add", [1], deadline=deadline)]


async def _asent(solver: Any, deadline: Any) -> Any:
    return await solver.asend("actor.add", 1, deadline=deadline)


FORMS = {
    "call": lambda solver, deadline: solver.call("actor.add", 1, deadline=deadline),
    "send": lambda solver, deadline: solver.send("actor.add", 1, deadline=deadline),
    "map": lambda solver, deadline: solver.map("actor.add", [1], deadline=deadline),
    "acall": lambda solver, deadline: asyncio.run(solver.acall("actor.add", 1, deadline=deadline)),
    "asend": lambda solver, deadline: asyncio.run(_asent(solver, deadline)),
    "amap": lambda solver, deadline: asyncio.run(_gathered(solver, deadline)),
    "Solver": lambda solver, deadline: type(solver)(solver.app, solver.topology, deadline=deadline),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("deadline", WRONG, ids=repr)
def test_an_impossible_deadline_is_refused_before_anything_is_sent(form, deadline):
    broker = InMemoryBroker()
    queue = declare(broker, ADD)
    with solver_of(broker) as solver:
        with pytest.raises(ConfigurationError, match=r"deadline=.*give a time in s over 0"):
            FORMS[form](solver, deadline)
        assert solver._client().under_way == 0 and not broker.waiting(queue)


def test_deadlines_that_a_message_can_carry_are_kept():
    assert [checked(one) for one in (None, 0.001, 60, MOST)] == [None, 0.001, 60.0, MOST]
    assert int(MOST * 1000) < 2**32
