"""Tests of a message that kills its worker: after three of them it is a dead letter, with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from support.calling import Calling
from support.waiting import PATIENCE, until

from tasks.app.dead_letters import REASON
from tasks.solver import Solver
from tasks.topology import address
from warren.errors import WorkerLost

KILLED = -9


def letters(calling: Calling, role: str) -> list[Any]:
    """Take out and return the dead letters of `role`."""
    found = []
    with calling.app.connection_for_write() as connection:
        queue = calling.topology.dead_queue(role)(connection.channel())
        queue.declare()
        while (message := queue.get(no_ack=True)) is not None:
            found.append(message)
    return found


def lies(calling: Calling, role: str, least: int = 1) -> bool:
    """Return whether there are at least `least` dead letters of `role`; they stay."""
    with calling.app.connection_for_write() as connection:
        return calling.topology.dead_queue(role)(connection.channel()).queue_declare().message_count >= least


def start_until_one_survives(calling: Calling, done: Any, most: int = 6) -> int:
    """Start workers, one after another was killed, until `done`; return how many were killed."""
    for killed in range(most):
        (worker,) = calling.start(1, may_end=True)
        until(lambda worker=worker: worker.poll() is not None or done())
        if worker.poll() is None:
            return killed
        assert worker.poll() == KILLED
    raise AssertionError(f"{most} workers were killed")


def test_a_call_without_an_answer_kills_three_workers_and_no_more(calling):
    (first,) = calling.start(1)
    calling.solver.call("actor.push_deadly", "deadly")
    calling.solver.call("actor.push", "after")
    assert calling.solver.flush(PATIENCE) == 0
    first.wait(PATIENCE)
    killed = 1 + start_until_one_survives(calling, lambda: calling.ran("after") and lies(calling, "actor"))
    assert calling.ran("deadly") == killed == 3
    (letter,) = letters(calling, "actor")
    assert letter.delivery_info["routing_key"] == "actor.push_deadly"
    assert "was delivered 3 times" in letter.headers[REASON]
    assert letter.decode()[0] == ("deadly",)
    assert "goes to the dead letters" in (calling.folder / "actor-3.log").read_text()


def test_a_deadly_call_kills_three_workers_and_calls_beside_it_are_answered(calling):
    (first,) = calling.start(1)
    solver = Solver(calling.app, calling.topology, deadline=280.0, patience=PATIENCE)
    solver.send("actor.hold", "gate")
    until(lambda: calling.ran("gate") == 1)
    handles = [solver.send("actor.live_or_die", key) for key in ("deadly", *map(str, range(30)))]
    for handle in handles:
        handle.add_done_callback(lambda _: None)  # so that somebody reads for it
    calling.release("gate")
    first.wait(PATIENCE)
    killed = 1 + start_until_one_survives(calling, lambda: all(handle.ended for handle in handles))
    assert calling.ran("deadly") == killed == 3
    assert [handle.exception() for handle in handles[1:]] == [None] * 30
    assert isinstance(handles[0].exception(), WorkerLost), handles[0].exception()
    assert "3 workers died" in str(handles[0].exception())


def test_calls_without_retries_beside_a_deadly_one_are_answered(calling):
    (first,) = calling.start(1)
    solver = Solver(calling.app, calling.topology, deadline=280.0, patience=PATIENCE)
    solver.send("actor.hold", "gate")
    until(lambda: calling.ran("gate") == 1)
    keys = ("deadly", *map(str, range(20)))
    handles = [solver.send("actor.live_or_die_once", key) for key in keys]
    for handle in handles:
        handle.add_done_callback(lambda _: None)  # so that somebody reads for it
    calling.release("gate")
    first.wait(PATIENCE)
    assert start_until_one_survives(calling, lambda: all(handle.ended for handle in handles)) == 0
    died = handles.pop(0)
    assert isinstance(died.exception(), WorkerLost) and "the worker that ran it died" in str(died.exception())
    assert [handle.exception() for handle in handles] == [None] * 20
    assert {calling.ran(key) for key in keys} == {1}


def test_only_the_call_at_fault_of_a_deadly_batch_is_given_up(calling):
    (first,) = calling.start(1)
    for key in ("one", "deadly", "two", "three"):
        calling.solver.call("actor.push_some", key)
    assert calling.solver.flush(PATIENCE) == 0
    first.wait(PATIENCE)
    killed = 1 + start_until_one_survives(calling, lambda: lies(calling, "actor"))
    assert killed <= 3
    assert [letter.decode()[0] for letter in letters(calling, "actor")] == [("deadly",)]
    until(lambda: all(calling.ran(key) >= 1 for key in ("one", "two", "three")))


def test_a_call_that_must_not_run_twice_kills_one_worker(calling):
    (first,) = calling.start(1)
    calling.solver.call("actor.push_deadly_once", "deadly")
    assert calling.solver.flush(PATIENCE) == 0
    first.wait(PATIENCE)
    assert start_until_one_survives(calling, lambda: lies(calling, "actor")) == 0
    assert calling.ran("deadly") == 1
    (letter,) = letters(calling, "actor")
    assert "was delivered once" in letter.headers[REASON]


def test_a_delivery_that_a_killed_worker_had_not_begun_is_not_counted(calling):
    calling.start(1)
    for number in range(2):
        calling.solver.call("actor.push_deadly", f"deadly-{number}")
    for _ in range(40):
        calling.solver.call("actor.push", "held")
    assert calling.solver.flush(PATIENCE) == 0
    calling.processes[0].wait(PATIENCE)
    # Each of the two kills as many workers as the limit allows.
    start_until_one_survives(calling, lambda: calling.ran("held") >= 40 and lies(calling, "actor", 2), most=12)
    # The first worker may have begun the second call too: that counts as a delivery.
    assert [calling.ran(f"deadly-{number}") for number in range(2)] in ([3, 3], [3, 2])
    assert {letter.decode()[0][0] for letter in letters(calling, "actor")} == {f"deadly-{n}" for n in range(2)}


def learners_until(calling: Calling, done: Any, most: int = 6) -> int:
    """Start learners, one after another was killed, until `done`; return how many were killed."""
    for killed in range(most):
        process = calling.start_learner(f"learner-{killed}")
        until(lambda process=process: process.poll() is not None or done())
        if process.poll() is None:
            return killed
        assert process.poll() == KILLED
    raise AssertionError(f"{most} learners were killed")


def send(calling: Calling, name: str, *texts: str) -> None:
    queue = calling.topology.learner_queue()
    with calling.app.connection_for_write() as connection, connection.channel() as channel:
        for declared in calling.topology.declared():
            declared(channel).declare()
    for text in texts:
        calling.app.send_task(name, args=(text,), ignore_result=True, **address(queue))


def test_a_segment_that_crashes_its_learner_crashes_three_and_the_others_are_learned(calling):
    send(calling, "learner.learn", "one", "deadly", "two")
    others = ("one", "two")
    killed = learners_until(calling, lambda: lies(calling, "learner") and all(map(calling.ran, others)))
    assert calling.ran("deadly") == killed == 3
    (letter,) = letters(calling, "learner")
    assert letter.decode()[0] == ("deadly",)
    assert "learner.learn was delivered 3 times" in letter.headers[REASON]


def test_a_plain_task_that_crashes_its_worker_crashes_three(calling):
    send(calling, "learner.round_failed", "deadly", "after")
    killed = learners_until(calling, lambda: lies(calling, "learner") and calling.ran("after"))
    assert calling.ran("deadly") == killed == 3
    (letter,) = letters(calling, "learner")
    assert "learner.round_failed was delivered 3 times" in letter.headers[REASON]


@pytest.mark.slow
def test_a_deadly_segment_is_given_up_on_the_embedded_server_too(embedded, run_name, tmp_path):
    calling = Calling(embedded.broker_url, embedded.redis_url, run_name, tmp_path)
    try:
        send(calling, "learner.learn", "one", "deadly", "two")
        logs = calling.folder.glob
        done = lambda: any("goes to the dead letters" in log.read_text() for log in logs("learner-*.log"))  # noqa: E731
        assert learners_until(calling, lambda: done() and calling.ran("one") and calling.ran("two")) == 3
        assert calling.ran("deadly") == 3
    finally:
        calling.close()
