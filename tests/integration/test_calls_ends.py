"""Callers end on real servers: event loops come and go, and leave no descriptor behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import Calling


@pytest.fixture(params=["servers", "embedded"])
def calling_either(request: pytest.FixtureRequest, run_name: str, tmp_path: Path) -> Iterator[Calling]:
    found = request.getfixturevalue(request.param)
    calling = Calling(found.broker_url, found.redis_url, run_name, tmp_path)
    try:
        calling.start()
        yield calling
    finally:
        calling.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_event_loops_that_end_leave_no_descriptor(calling_either):
    solver = calling_either.solver

    def turns(number: int) -> int:
        for turn in range(number):
            assert asyncio.run(solver.acall("actor.add", turn)) == turn + 1
        return descriptors()

    after_20 = turns(20)
    assert turns(100) <= after_20 + 3, "each loop would keep one at least"
