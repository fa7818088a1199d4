"""Calls behave alike on RabbitMQ and on the embedded server."""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path

from warren.errors import RemoteFailure


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


def test_the_kind_of_a_failure_names_its_class_and_module(calling_either):
    store, prefix = calling_either.solver._directory._redis, calling_either.topology.key_prefix
    store.lpush(f"{prefix}ran:a list", 1)
    failed = calling_either.solver.send("actor.ran", "a list").exception()
    assert isinstance(failed, RemoteFailure) and failed.kind == "redis.exceptions.ResponseError"
    assert "WRONGTYPE" in failed.remote_message and "in ran" in failed.traceback


def test_a_call_calls_back_though_nobody_waits_for_it(calling_either):
    solver = calling_either.solver
    futures = {solver.send("actor.add", number).future(): number for number in range(20)}
    for done in concurrent.futures.as_completed(futures, timeout=60.0):
        assert done.result() == futures[done] + 1
