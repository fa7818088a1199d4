"""Tests of the table of exchanges and queues: its entries are right, and no other code names one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import brokers
from support.obedient import ObedientWorker
from support.python_source import parsed
from support.waiting import PATIENCE

from tasks import topology as table
from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.servers import Servers

ROOT = Path(__file__).parents[2]
PASSING_ON = [ROOT / "tasks" / "topology.py", ROOT / "tasks" / "brokers" / "declaring.py"]  # files that may name one
PACKAGES = ("warren", "tasks", "workers", "league", "agents", "envs")


def every_queue(topology: Topology) -> list[Any]:
    return [
        *topology.declared(),
        topology.actor_queue("old"),
        topology.learner_queue("second"),
        topology.service_queue("policy.act"),
        topology.service_queue("policy.log", response=False),
        topology.event_queue("weights", "actor-0"),
    ]


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}", fullmatch=True))
def test_every_name_begins_with_the_run(run: str) -> None:
    topology = Topology(run)
    for queue in every_queue(topology):
        assert queue.name.startswith(f"warren.{run}.")
        assert queue.exchange.name.startswith(f"warren.{run}.")
    for name in (topology.control, topology.celery_events, topology.service.name, topology.dead.name):
        assert name.startswith(f"warren.{run}.")
    assert topology.key_prefix == f"warren.{run}:"


@pytest.mark.parametrize("run", ["", ".", "a.b", "a b", "-a", "_a", "a/b", "a*", "é", "a\n", "a" * 81, "warren.x"])
def test_a_bad_run_name_is_refused(run: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot name a run; use 1 to 80 letters"):
        Topology(run)


def test_names_of_a_run_are_no_prefix_of_another_runs() -> None:
    short, long = Topology("run"), Topology("run-2")
    assert not long.key_prefix.startswith(short.key_prefix)
    assert not [queue for queue in every_queue(long) if queue.name.startswith(f"{short.prefix}.")]


def test_queues_are_bounded_unless_their_messages_have_a_time_to_live() -> None:
    topology = Topology("r", learner_bound=7)
    by_key = {queue.name.removeprefix("warren.r."): queue for queue in every_queue(topology)}
    learner = by_key["learner.main"]
    assert (learner.max_length, learner.queue_arguments["x-overflow"]) == (7, "reject-publish")
    for role in table.ROLES:
        dead = by_key[f"dead.{role}"]
        assert (dead.max_length, dead.queue_arguments["x-overflow"]) == (table.DEAD_LENGTH, "drop-head")
        assert "x-dead-letter-exchange" not in dead.queue_arguments, (
            "an expired dead letter would be dead-lettered again"
        )
    unbounded = {key for key, queue in by_key.items() if not queue.max_length}
    assert unbounded == {"actor.main", "actor.old", "service.policy.act"}
    cast = by_key["service.policy.log"]
    assert (cast.max_length, cast.queue_arguments["x-overflow"]) == (table.ONE_WAY_LENGTH, "reject-publish")


def test_every_queue_names_its_type() -> None:
    for queue in every_queue(Topology("r")):
        assert queue.queue_arguments["x-queue-type"] == "classic"


def test_on_a_cluster_queues_that_outlive_a_connection_are_quorum_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(table.QUEUES_VARIABLE, "quorum")
    for queue in every_queue(Topology("r")):
        assert queue.queue_arguments["x-queue-type"] == ("classic" if queue.exclusive else "quorum")
        assert queue.exclusive or queue.queue_arguments["x-delivery-limit"] > 1000, (
            "the broker's limit must never be reached: workers count deliveries themselves"
        )
    monkeypatch.setenv(table.QUEUES_VARIABLE, "stream")
    with pytest.raises(ConfigurationError, match="WARREN_QUEUES"):
        Topology("r")


def test_an_event_queue_is_exclusive_and_holds_the_newest_messages() -> None:
    first, second = (Topology("r").event_queue("weights", "actor-0") for _ in range(2))
    assert first.exchange.type == "fanout"
    assert (first.max_length, first.queue_arguments["x-overflow"]) == (table.EVENT_LENGTH, "drop-head")
    assert first.exclusive
    assert first.auto_delete
    assert not first.durable
    assert first.name != second.name


def test_a_task_queue_expires_some_time_after_its_consumers() -> None:
    topology = Topology("r")
    for queue in topology.declared():
        assert queue.durable
    assert {queue.expires for queue in topology.task_queues()} == {table.UNUSED_EXPIRES}


def test_dead_letters_wait_for_days() -> None:
    assert Topology("r").dead_queue("learner").expires == table.DEAD_EXPIRES >= 7 * 86_400


def test_segments_and_rollouts_are_persistent_but_calls_and_events_are_not() -> None:
    topology = Topology("r")
    assert topology.learner.delivery_mode == topology.actor.delivery_mode == 2
    assert topology.service.delivery_mode == topology.event("weights").delivery_mode == 1


@pytest.mark.parametrize(
    ("task", "exchange", "key"),
    [
        ("actor.rollout", "warren.r.actor", "actor.main"),
        ("learner.learn", "warren.r.learner", "learner.main"),
        ("learner.round_failed", "warren.r.learner", "learner.main"),
        ("policy.act", "warren.r.service", "policy.act"),
        ("actor.act", "warren.r.service", "actor.act"),
    ],
)
def test_a_task_is_routed_by_its_name(task: str, exchange: str, key: str) -> None:
    route = Topology("r").route(task)
    assert route is not None
    assert (route["exchange"], route["routing_key"]) == (exchange, key)


@pytest.mark.parametrize("task", ["celery.chord_unlock", "celery.backend_cleanup", "nameless"])
def test_the_topology_has_no_route_for_foreign_tasks(task: str) -> None:
    assert Topology("r").route(task) is None


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, value) of each string but docstrings; an f-string's expressions stand in braces."""
    tree = parsed(path)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else f"{{{ast.unparse(p.value)}}}" for p in node.values]  # type: ignore[attr-defined]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def test_no_other_code_names_an_exchange_or_a_queue() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 40
    found = []
    for path in files:
        if path in PASSING_ON or path.parent == ROOT / "tasks" / "testing":
            continue
        source = path.read_text()
        for line, text in constants(path):
            names = "topology.prefix}" in text or text.startswith(("warren.{", "actor.main", "learner.main"))
            if names and not text.endswith(":"):  # a name with a colon is a Redis key
                found.append(f"{path.relative_to(ROOT)}:{line}: {text!r}")
        for made in ("Exchange(", "Queue(", "exchange_declare(", "queue_declare(queue="):
            if f" {made}" in source and f"SimpleQueue{made}" not in source and "kombu" in source:
                found.append(f"{path.relative_to(ROOT)} makes its own: {made}")
    assert found == []


def test_one_permission_pattern_fits_one_run(servers: Servers, run_name: str, tmp_path: Path) -> None:
    brokers.control(servers, "add_user", run_name, "secret")
    pattern = rf"^warren\.{run_name}\."
    brokers.control(servers, "set_permissions", run_name, pattern, pattern, pattern)
    try:
        url = f"amqp://{run_name}:secret@{servers.broker_url.partition('@')[2]}"
        with ObedientWorker(run_name, url, servers.redis_url, tmp_path / "log") as worker:
            assert worker.do("return", 5).get(timeout=PATIENCE) == 5
            assert worker.app.control.ping(timeout=PATIENCE, limit=1) == [{f"obedient@{run_name}": {"ok": "pong"}}]
            worker.do("raise", "for good", ignore_result=True)
            assert worker.do("return", 6).get(timeout=PATIENCE) == 6
            assert "ACCESS_REFUSED" not in worker.log.read_text()
        stranger = create_app(Topology(f"{run_name}-2"), url, servers.redis_url)
        with stranger.connection_for_write() as connection, pytest.raises(connection.channel_errors, match="refused"):
            Topology(f"{run_name}-2").actor_queue()(connection.default_channel).declare()
    finally:
        brokers.control(servers, "delete_user", run_name)


def test_priorities_give_a_classic_queue_of_as_many_levels_and_no_quorum_queue():
    queue = Topology("run").service_queue("actor.act", priorities=5)
    assert queue.queue_arguments["x-max-priority"] == 4
    assert "x-max-priority" not in Topology("run").service_queue("actor.act").queue_arguments
    with pytest.raises(ConfigurationError, match=r"actor\.act: priorities=5: quorum queues have no levels"):
        Topology("run", queue_type="quorum").service_queue("actor.act", priorities=5)
