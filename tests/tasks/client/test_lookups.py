"""Tests of a first call while Redis, which holds the directory, is away: it waits as long as for a broker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import redis
from support.in_memory import ADD, Directory, Service, solver_of

from tasks.service import Spec
from tasks.testing import InMemoryBroker
from warren.errors import BrokerError


class AwayDirectory(Directory):
    """A directory whose first `times` look-ups time out."""

    def __init__(self, times: float) -> None:
        super().__init__(ADD)
        self.times = times

    def find(self, name: str) -> Spec | None:
        if self.times > 0:
            self.times -= 1
            raise redis.TimeoutError("Timeout reading from socket")
        return super().find(name)


@pytest.fixture
def broker() -> InMemoryBroker:
    return InMemoryBroker()


def solver_without_redis(broker: InMemoryBroker, times: float) -> Any:
    solver: Any = solver_of(broker)
    solver._directory = AwayDirectory(times)
    return solver


def test_a_service_is_looked_up_again_until_redis_is_back(broker: InMemoryBroker) -> None:
    with Service(broker, ADD, lambda a, b: a + b):
        assert solver_without_redis(broker, 3).call(ADD.name, 1, 2) == 3
        assert asyncio.run(solver_without_redis(broker, 3).acall(ADD.name, 1, 2)) == 3


def test_a_redis_that_stays_away_is_one_error_after_the_patience(broker: InMemoryBroker) -> None:
    solver = solver_without_redis(broker, float("inf"))
    solver.patience = 0.3
    began = time.monotonic()
    with pytest.raises(BrokerError, match=f"cannot look up service {ADD.name}: Redis is away: Timeout"):
        solver.call(ADD.name, 1, 2)
    assert time.monotonic() - began >= 0.3
