"""Tests of calls on the embedded Redis, received by Celery's own consumer: answers and errors are the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import numpy as np
import pytest
from support.calling import Calling, events_received_while_busy
from support.waiting import PATIENCE, until

from tasks.solver import Solver
from warren.errors import DeadlinePassed, NoSuchService, RemoteFailure


@pytest.fixture(scope="module")
def served(embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calling]:
    folder = tmp_path_factory.mktemp("calls")
    calling = Calling(embedded.broker_url, embedded.redis_url, f"embedded-{os.getpid()}", folder)
    try:
        calling.start()
        yield calling
    finally:
        calling.close()


def test_calls_block_for_their_answers(served):
    observation = np.ones((32, 4), np.float32)
    assert served.solver.call("actor.infer", observation).shape == (32,)
    assert served.solver.call("actor.add", 2, 5, scale=10) == 70


def test_a_failure_has_its_message_and_its_kind(served):
    with pytest.raises(RemoteFailure, match="words") as caught:
        served.solver.call("actor.fail", "words")
    assert caught.value.kind == "ValueError"


def test_batches_are_gathered_and_fail_only_the_call_at_fault(served):
    handles = [served.solver.send("actor.inverses", n) for n in (1, 0, 4)]
    assert handles[0].result() == 1 and handles[2].result() == 0.25
    with pytest.raises(RemoteFailure, match="division by zero"):
        handles[1].result()


def test_exactly_waits_for_as_many_callers_as_asked_for(served):
    handles = [served.solver.send("actor.trio", n) for n in (3, 1, 2)]
    assert [handle.result() for handle in handles] == [(1, 2, 3)] * 3


def test_map_and_asyncio_work_too(served):
    assert list(served.solver.map("actor.add", range(30))) == list(range(1, 31))

    async def scenario():
        return await asyncio.gather(*[served.solver.acall("actor.add", n) for n in range(10)])

    assert asyncio.run(scenario()) == list(range(1, 11))


def test_calls_without_an_answer_run(served):
    for _ in range(20):
        assert served.solver.call("actor.push", "pushed") is None
    until(lambda: served.ran("pushed") == 20)


def test_deadlines_and_unknown_names_are_errors(served):
    busy = served.solver.send("actor.hold", "busy")  # otherwise the call may be answered within its deadline
    until(lambda: served.ran("busy") == 1)
    with pytest.raises(DeadlinePassed):
        served.solver.call("actor.ran", "late", deadline=0.2)
    served.release("busy")
    busy.result()
    with pytest.raises(NoSuchService, match=r"actor\.policy_eval"):
        Solver(served.app, served.topology, patience=0.3).call("actor.policy_evil")


def test_chords_join(served):
    result = served.solver.gather([("actor.add", n) for n in range(20)], then="actor.total")
    assert result.get(timeout=PATIENCE) == sum(range(1, 21))


def test_during_a_call_handlers_get_all_events_or_skip_to_the_newest(served):
    received, newest = events_received_while_busy(served, 60)
    assert received == list(range(60))
    assert newest == sorted(newest) and len(newest) < 30
