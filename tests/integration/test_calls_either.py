"""Tests of calls that behave alike on RabbitMQ and on the embedded server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from pathlib import Path
from typing import Any

from support.waiting import until

from tasks import brokers
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
    assert turns(100) <= after_20 + 3, "loops kept descriptors open"


def test_the_kind_of_a_failure_names_its_class_and_module(calling_either):
    store, prefix = calling_either.solver._directory._redis, calling_either.topology.key_prefix
    store.lpush(f"{prefix}ran:a list", 1)
    failed = calling_either.solver.send("actor.ran", "a list").exception()
    assert isinstance(failed, RemoteFailure) and failed.kind == "redis.exceptions.ResponseError"
    assert "WRONGTYPE" in failed.remote_message and "in ran" in failed.traceback


def test_a_calls_callback_runs_without_a_waiter(calling_either):
    solver = calling_either.solver
    futures = {solver.send("actor.add", number).future(): number for number in range(20)}
    for done in concurrent.futures.as_completed(futures, timeout=60.0):
        assert done.result() == futures[done] + 1


def test_threads_that_follow_each_other_share_a_connection(calling_either, monkeypatch):
    solver, links, results = calling_either.solver, list[Any](), list[int]()
    connect = brokers.of(calling_either.app).connect
    monkeypatch.setattr(brokers.of(calling_either.app), "connect", lambda: links.append(connect()) or links[-1])

    def in_turn(number: int) -> int:
        for turn in range(number):
            thread = threading.Thread(target=lambda turn=turn: results.append(solver.call("actor.add", turn)))
            thread.start()
            thread.join()
        gc.collect()  # Celery makes a result backend per thread, with cycles, and on the embedded server a socket
        return descriptors()

    after_20 = in_turn(20)
    assert in_turn(200) <= after_20
    assert results == [*range(1, 21), *range(1, 201)] and len(links) <= 1


def test_concurrent_threads_have_own_connections_and_leave_at_most_16(calling_either, monkeypatch):
    solver, links, meet = calling_either.solver, list[Any](), threading.Barrier(30)
    connect = brokers.of(calling_either.app).connect
    monkeypatch.setattr(brokers.of(calling_either.app), "connect", lambda: links.append(connect()) or links[-1])

    def call(turn: int) -> int:
        meet.wait(60.0)
        result: int = solver.call("actor.add", turn)
        meet.wait(60.0)
        return result

    for round_ in (1, 2):
        with concurrent.futures.ThreadPoolExecutor(30) as threads:
            assert sorted(threads.map(call, range(30))) == list(range(1, 31))
        until(lambda: len(solver._idle._clients) == 16)
        assert sum(link.alive for link in links) == (16 if links else 0)
        assert len(links) in (0, 30 + (round_ - 1) * 14)


def test_one_way_calls_of_a_thread_that_ended_arrive_and_fail_no_other_threads_flush(calling_either):
    solver = calling_either.solver

    def push() -> None:
        for _ in range(10):
            solver.call("actor.push", "of a thread")

    for _ in range(3):
        thread = threading.Thread(target=push)
        thread.start()
        thread.join()
    assert solver.flush() == 0
    until(lambda: calling_either.ran("of a thread") == 30)
