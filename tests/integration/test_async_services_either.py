"""Tests of `async def` services on RabbitMQ and the embedded server: concurrent calls, each of which ends once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from celery.exceptions import TaskRevokedError
from support.calling import Calling
from support.waiting import PATIENCE, until

from tasks.events import EventDispatcher
from warren.errors import CallError, DeadlinePassed, RemoteFailure


def test_calls_of_one_service_run_at_once_while_others_are_answered(calling_either):
    solver = calling_either.solver
    held = [solver.send("actor.ahold", "all") for _ in range(30)]
    until(lambda: calling_either.ran("all") == 20)
    assert solver.call("actor.add", 1) == 2
    assert calling_either.ran("all") == 20
    calling_either.release("all")
    assert len({handle.result() for handle in held}) == 1 and calling_either.ran("all") == 30


def test_async_batches_and_failures_are_like_those_of_plain_services(calling_either):
    solver = calling_either.solver
    handles = [solver.send("actor.ainverses", n) for n in (1, 0, 4)]
    assert handles[0].result() == 1 and handles[2].result() == 0.25
    assert isinstance(handles[1].exception(), RemoteFailure)
    for how in ("reject", "surrogate", "cancelled"):
        assert isinstance(solver.send("actor.atrouble", how).exception(), RemoteFailure)
    assert isinstance(solver.send("actor.atrouble", "ignore", deadline=5.0).exception(), CallError)
    assert solver.call("actor.atrouble", "requeue") == 2


def test_a_call_that_is_cancelled_or_late_is_cancelled_in_the_loop(calling_either):
    solver = calling_either.solver

    def late() -> int:
        """Let a call pass its deadline; return how many have begun: a busy machine may drop one before it begins."""
        with pytest.raises(DeadlinePassed):
            solver.call("actor.ahold", "late", deadline=1.0)
        return calling_either.ran("late")

    begun = until(late)
    until(lambda: calling_either.ran("late cancelled") == begun)
    unwanted = solver.send("actor.ahold", "unwanted")
    until(lambda: calling_either.ran("unwanted") == 1)
    assert unwanted.cancel()
    until(lambda: calling_either.ran("unwanted cancelled") == 1)


def test_a_revoked_celery_call_is_cancelled_and_ends_as_revoked(calling_either):
    call = calling_either.app.send_task("actor.ahold", ("stock",), argsrepr="", kwargsrepr="")
    until(lambda: calling_either.ran("stock") == 1)
    calling_either.app.control.revoke(call.id)
    with pytest.raises(TaskRevokedError):
        call.get(timeout=PATIENCE)
    until(lambda: calling_either.ran("stock cancelled") == 1)


def test_a_stopped_worker_finishes_calls_that_end_and_returns_the_rest(calling_either):
    solver = calling_either.solver
    (first,) = calling_either.processes
    ends, goes_on = solver.send("actor.ahold", "ends"), solver.send("actor.ahold", "goes on", deadline=None)
    until(lambda: calling_either.ran("ends") == calling_either.ran("goes on") == 1)
    first.send_signal(signal.SIGTERM)
    calling_either.release("ends")
    assert ends.result() == first.pid
    assert first.wait(PATIENCE) == 0
    assert calling_either.ran("goes on cancelled") == 1
    (second,) = calling_either.start()
    until(lambda: calling_either.ran("goes on") == 2)
    calling_either.release("goes on")
    assert goes_on.result() == second.pid


def test_asyncio_callers_can_call_asyncio_services(calling_either):
    async def scenario() -> list[int]:
        calls = [calling_either.solver.asend("actor.ahold", "loop") for _ in range(10)]
        await asyncio.to_thread(until, lambda: calling_either.ran("loop") == 10)
        calling_either.release("loop")
        return await asyncio.gather(*calls)

    assert len(set(asyncio.run(scenario()))) == 1


def test_async_handlers_get_events_one_after_another_and_keep_no_call_waiting(calling_either):
    events = EventDispatcher(calling_either.app, calling_either.topology)
    for fired in range(60):
        events.fire("acounted", fired)
    assert calling_either.solver.call("actor.aevents_received") == ([], [])  # answered while both handlers await
    calling_either.release("acounted")
    until(lambda: all(found[-1:] == [59] for found in calling_either.solver.call("actor.aevents_received")))
    received, newest = calling_either.solver.call("actor.aevents_received")
    assert received == list(range(60)) and newest == sorted(newest) and len(newest) < 30


def test_a_one_way_call_that_kills_its_worker_kills_three(calling: Calling):
    solver, key = calling.solver, "deadly"
    calling.start(may_end=True)
    solver.call("actor.apush_deadly", key)
    for runs in (1, 2, 3):
        until(lambda runs=runs: calling.ran(key) == runs)
        until(lambda: calling.processes[-1].poll() is not None)
        calling.start(may_end=True)
    assert solver.call("actor.add", 1) == 2 and calling.ran(key) == 3


def test_a_killed_workers_calls_run_elsewhere_unless_retries_is_0(calling: Calling):
    (first,) = calling.start()
    again, once = calling.solver.send("actor.ahold", "again"), calling.solver.send("actor.ahold_once", "once")
    for handle in (again, once):
        handle.add_done_callback(print)  # a thread then reads the answers
    until(lambda: calling.ran("again") == calling.ran("once") == 1)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (second,) = calling.start()
    until(lambda: calling.ran("again") == 2)
    calling.release("again")
    assert again.result() == second.pid
    assert isinstance(once.exception(), CallError) and calling.ran("once") == 1


def test_descriptors_stay_flat_over_many_calls(calling: Calling):
    (worker,) = calling.start()

    def descriptors() -> int:
        return len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))

    calling.release("flat")
    assert len(set(calling.solver.map("actor.ahold", ["flat"] * 200, in_flight=50))) == 1
    after = descriptors()
    assert len(set(calling.solver.map("actor.ahold", ["flat"] * 500, in_flight=50))) == 1
    until(lambda: descriptors() <= after)
