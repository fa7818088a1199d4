"""Calls behave alike on RabbitMQ and on the embedded server."""

from __future__ import annotations

import asyncio
import concurrent.futures
from pathlib import Path

import pytest
from calling import Calling
from waiting import until

from tasks.admin.discovery import discover
from tasks.app.dead_letters import REASON
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


def test_a_call_runs_again_after_exceptions_that_its_service_has_tried_again(calling_either):
    solver = calling_either.solver
    assert solver.call("actor.flaky", "direct", 3) == 3
    assert solver.call("actor.flaky_async", "in a loop", 3) == 3
    with pytest.raises(RemoteFailure, match="for good is away") as caught:
        solver.call("actor.flaky", "for good", 99)
    assert caught.value.kind == "ConnectionResetError" and calling_either.ran("for good") == 4
    assert calling_either.app.send_task("actor.flaky", ("celery", 3)).get(timeout=60.0) == 3
    solver.call("actor.push_flaky", "one-way", 3)
    until(lambda: calling_either.ran("one-way") == 3)
    assert solver.call("actor.add", 1) == 2


def test_a_one_way_call_that_has_spent_its_retries_is_a_dead_letter_and_counted(servers, run_name, tmp_path):
    calling = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        calling.start()
        calling.solver.call("actor.push_flaky", "gone", 99)
        with calling.app.connection_for_read() as connection:
            queue = calling.topology.dead_queue("actor")(connection.default_channel)
            until(lambda: queue.get(no_ack=False) is not None)
            connection.default_channel.basic_recover(requeue=True)
            letter = queue.get(no_ack=True)
        assert letter.headers[REASON] == "it failed 4 times, last with ConnectionResetError: gone is away"
        assert [one.retried for one in discover(calling.app) if one.service == "actor.push_flaky"] == [3]
    finally:
        calling.close()
