"""Tests of services, events, remote control and a learner's queue with messages that no client of Warren sends."""

from __future__ import annotations

from typing import Any

import pytest
from support.calling import Calling
from support.hostile import Hostile, Publisher, known, mixture
from support.waiting import until

from tasks.events import EventDispatcher
from tasks.topology import address

WITH_ANSWER, ONE_WAY = ("add", "policy_eval", "halves", "total", "infer"), ("push", "push_some")


@pytest.fixture
def app(calling: Calling) -> Calling:
    """Return a run with a worker of services and a learner."""
    calling.start(1)
    calling.start_learner("learner")
    until(lambda: b"ready" in (calling.folder / "learner.log").read_bytes())
    return calling


def counters(app: Calling) -> dict[str, dict[str, int]]:
    """Return service -> its counters in the worker."""

    def told() -> list[dict[str, Any]]:
        """Return the worker's answer in a list, empty if it is late."""
        with app.app.connection_for_write() as connection:
            replies = app.app.control.broadcast("services", reply=True, timeout=10.0, limit=1, connection=connection)
        return [one for reply in replies or () for one in reply.values() if isinstance(one, dict) and "services" in one]

    (status,) = until(told)
    services: dict[str, dict[str, int]] = status["services"]
    return services


def ended(app: Calling) -> int:
    """Return how many messages to services have ended, in whichever way."""
    ways = ("calls", "dropped", "refused")
    return sum(int(counts.get(way, 0)) for counts in counters(app).values() for way in ways)


def queue_length(app: Calling, queue: Any) -> int:
    with app.app.connection_for_write() as connection:
        return int(queue(connection.channel()).queue_declare().message_count)


def works(app: Calling) -> None:
    """Check that both processes run and deal with a call, a one-way call, a segment, an event and a command."""
    assert [process.poll() for process in app.processes] == [None, None]
    assert app.solver.call("actor.add", 1, 2) == 3
    pushed, learned = app.ran("alive"), app.ran("segment")
    app.solver.call("actor.push", "alive")
    app.app.send_task("learner.learn", args=("segment",), ignore_result=True, **address(app.topology.learner_queue()))
    until(lambda: app.ran("alive") == pushed + 1 and app.ran("segment") == learned + 1)
    fired = len(app.solver.call("actor.events_received")[0]) + 1000
    EventDispatcher(app.app, app.topology).fire("counted", fired)
    until(lambda: app.solver.call("actor.events_received")[0][-1:] == [fired])
    logs = "".join(path.read_text() for path in app.folder.glob("*.log"))
    for message in ("connecting anew", "Unrecoverable", "outside the code", "outside its own code", "subscribing anew"):
        assert message not in logs, message


def dead(app: Calling) -> int:
    return sum(queue_length(app, app.topology.dead_queue(role)) for role in ("actor", "learner"))


def all_settled(app: Calling) -> None:
    """Wait until queues are empty and no more messages end: none is redelivered for ever."""
    topology = app.topology
    queues = [topology.service_queue(f"actor.{name}") for name in WITH_ANSWER]
    queues += [topology.service_queue(f"actor.{name}", response=False) for name in ONE_WAY]
    until(lambda: sum(queue_length(app, queue) for queue in [*queues, topology.learner_queue()]) == 0)
    until(lambda: ended(app) == ended(app))  # the worker may still hold some


def test_messages_that_once_did_harm_end_and_do_no_harm(app):
    calls = [f"actor.{name}" for name in (*WITH_ANSWER, *ONE_WAY)]
    works(app)
    topology = app.topology
    with Publisher(app.broker_url) as publisher:
        before = ended(app)
        sent = sum(publisher.send(topology.service.name, name, known(name)) for name in calls)
        learning = publisher.send(topology.learner.name, "learner.main", known("learner.learn"))
        learning += publisher.send(topology.learner.name, "learner.main", known("learner.round_failed"))
        for exchange in (f"{topology.control}.pidbox", topology.event("counted").name, topology.event("stated").name):
            publisher.send(exchange, "", known("ping"))
    until(lambda: ended(app) >= before + sent)
    works(app)
    all_settled(app)
    one_way = sum(int(counters(app)[f"actor.{name}"].get("refused", 0)) for name in ONE_WAY)
    until(lambda: dead(app) + app.ran("x") >= one_way + learning)


def test_a_thousand_random_messages_end_and_calls_go_on(app):
    topology = app.topology
    targets = [(topology.service.name, f"actor.{name}", f"actor.{name}") for name in (*WITH_ANSWER, *ONE_WAY)]
    targets += [(topology.learner.name, "learner.main", task) for task in ("learner.learn", "learner.round_failed")] * 3
    targets += [("", topology.learner_queue().name, "learner.learn"), (topology.dead.name, "actor.x", "x")]
    targets += [(topology.event(name).name, "", name) for name in ("counted", "stated")]
    targets += [(f"{topology.control}.pidbox", "", "ping"), (topology.celery_events, "worker.online", "x")]
    works(app)
    with Publisher(app.broker_url) as publisher:
        for number, (exchange, key, message) in enumerate(mixture(20260101, 1000, targets)):
            publisher.send(exchange, key, [message])
            if number % 100 == 0:
                assert app.solver.call("actor.add", number, 1) == number + 1
    works(app)
    all_settled(app)


def test_a_refusal_is_counted_and_its_caller_gets_a_failure(app):
    message = Hostile(b"hello", {"id": "a", "task": "actor.add"}, reply_to="a stock client")
    with Publisher(app.broker_url) as publisher:
        publisher.send(app.topology.service.name, "actor.add", [message])
    until(lambda: counters(app)["actor.add"].get("refused") == 1)
    result = app.app.AsyncResult("a")
    until(lambda: result.state == "FAILURE")
    assert "the call of actor.add cannot be run: a message begins with" in str(result.result)
