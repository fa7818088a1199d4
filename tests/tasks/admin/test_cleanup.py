"""Tests of the lengths of a run's queues, and of removing all traces of a run but none of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kombu.pools
import pytest
import redis
from support.waiting import PATIENCE, until

from tasks.admin.cleanup import Depths, remove_run
from tasks.admin.registry import Directory
from tasks.app import create_app
from tasks.app.reader import Reader, remove_shared, token_key
from tasks.client.chord import gather
from tasks.codec.shared_memory import SharedFolder
from tasks.events import STATUS, WEIGHTS, EventDispatcher, Subscription
from tasks.service import Spec
from tasks.topology import Topology
from warren.errors import BrokerError
from workers.servers import Servers


@pytest.fixture(params=["rabbitmq", "embedded"])
def server(request: pytest.FixtureRequest) -> Servers:
    kombu.pools.reset()  # drops connections that another test has cut
    found: Servers = request.getfixturevalue("servers" if request.param == "rabbitmq" else "embedded")
    return found


def lived_in(servers: Servers, run: str) -> tuple[Any, Topology]:
    """Make a run with traces of each kind: queues, events, an unfinished chord, results, remote control, keys."""
    topology = Topology(run)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
        receiver = app.events.Receiver(channel, handlers={})  # like Flower's
        receiver.queue(channel).declare()
        topology.service_queue("policy.act")(channel).declare()
    Directory(app, topology).enter([Spec("policy.act")])
    subscription = Subscription(app, topology, {WEIGHTS: print, STATUS: print}, "me").start(PATIENCE)
    dispatcher = EventDispatcher(app, topology)
    dispatcher.fire(WEIGHTS, {"version": 1})
    dispatcher.fire(STATUS, {"state": "training"})
    app.control.ping(timeout=0.1)
    quiet = {"ignore_result": True}
    rollouts = [app.signature("actor.rollout", args=(i,), options=quiet) for i in range(3)]
    gather(app, rollouts, app.signature("learner.learn", options=quiet))
    app.backend.store_result(f"{run}-task", {"a": 1}, "SUCCESS")
    redis.Redis.from_url(servers.redis_url).set(f"{topology.key_prefix}pool:main", b"weights")
    subscription.stop()
    return app, topology


def keys(servers: Servers, topology: Topology) -> set[bytes]:
    found: set[bytes] = set()
    for url in {servers.redis_url, *([servers.broker_url] if servers.kind == "redis" else [])}:
        found |= set(redis.Redis.from_url(url).scan_iter(match=f"*{topology.prefix}[.:]*", count=1000))
    return found


def test_removing_a_run_leaves_none_of_its_traces_and_all_of_another_run(
    server: Servers, run_name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.app.reader.HOLDS", 3600)
    (app, topology), (_, other) = lived_in(server, run_name), lived_in(server, f"{run_name}-2")
    rabbitmqctl: Callable[..., list[str]] | None = None
    if server.kind == "rabbitmq":
        rabbitmqctl = request.getfixturevalue("rabbitmqctl")

    def names() -> list[set[str]]:
        """Return the names of queues and exchanges of both runs."""
        listed = rabbitmqctl and [*rabbitmqctl("list_queues", "name"), *rabbitmqctl("list_exchanges", "name")]
        # Queues of remote control and of task events end with their connections or expire within a minute.
        lasting = [name for name in listed or () if ".control.reply." not in name and ".events." not in name]
        return [{name for name in lasting if f"{of.prefix}." in name} for of in (topology, other)]

    def without_subscribers() -> list[set[str]] | None:
        """Return the names, or None while queues of subscriptions exist, which end with their connections."""
        found = names()
        return None if any(".me." in name for name in set[str]().union(*found)) else found

    assert keys(server, topology)
    client = redis.Redis.from_url(server.redis_url)
    assert Reader(client, topology, topology.learner_queue(), 3600).announce()
    assert Reader(client, other, other.learner_queue(), 3600).announce()
    folders = [SharedFolder(client.get(token_key(each)).decode()) for each in (topology, other)]
    (_, kept), kept_keys = until(without_subscribers, "the end of subscriptions"), keys(server, other)
    remove_run(app, redis.Redis.from_url(server.redis_url), topology)
    assert names() == [set(), kept]
    assert keys(server, topology) == set()
    assert keys(server, other) == kept_keys
    assert [folder.is_ours() for folder in folders] == [False, True], (
        "shared memory of this run is left, or the other's is gone"
    )
    remove_shared(client, other)


def test_removing_a_run_that_is_not_there_is_no_error(server: Servers, run_name: str) -> None:
    topology = Topology(run_name)
    app = create_app(topology, server.broker_url, server.redis_url)
    for _ in range(2):
        remove_run(app, redis.Redis.from_url(server.redis_url), topology)


def test_more_keys_than_one_command_takes_are_removed(servers: Servers, run_name: str) -> None:
    topology, client = Topology(run_name), redis.Redis.from_url(servers.redis_url)
    with client.pipeline() as pipe:
        for number in range(2500):
            pipe.set(f"{topology.key_prefix}{number}", 1)
        pipe.execute()
    remove_run(create_app(topology, servers.broker_url, servers.redis_url), client, topology)
    assert keys(servers, topology) == set()


@pytest.mark.timeout(240)  # it does not try again and again
def test_servers_that_are_away_are_named_and_the_other_is_cleaned(servers: Servers, run_name: str) -> None:
    topology, client = Topology(run_name), redis.Redis.from_url(servers.redis_url)
    client.set(f"{topology.key_prefix}pool:main", b"weights")
    app = create_app(topology, "amqp://guest:guest@127.0.0.1:1//", servers.redis_url)
    with pytest.raises(BrokerError, match=rf"not all of run {run_name} could be removed.*refused"):
        remove_run(app, client, topology)
    assert keys(servers, topology) == set()


def test_depths_are_those_of_the_task_queues(server: Servers, run_name: str) -> None:
    topology = Topology(run_name)
    app = create_app(topology, server.broker_url, server.redis_url)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
    for number in range(3):
        app.send_task("learner.learn", args=(number,), ignore_result=True)
    depths = Depths(app, topology)
    assert depths.read() == {"actor.main": 0, "learner.main": 3}
    depths.close()
    assert depths.read() == {"actor.main": 0, "learner.main": 3}
    depths.close()
    remove_run(app, redis.Redis.from_url(server.redis_url), topology)


def test_depths_leave_out_a_queue_that_has_expired(servers: Servers, run_name: str) -> None:
    topology = Topology(run_name, learners=2)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    with app.connection_for_write() as connection, connection.channel() as channel:
        for queue in topology.declared():
            queue(channel).declare()
        topology.rank_queue("main", 1)(channel).delete()
        app.send_task("learner.learn", args=(1,), ignore_result=True)
        depths = Depths(app, topology)
        assert [depths.read() for _ in range(2)] == [{"actor.main": 0, "learner.main": 1}] * 2
        depths.close()
    remove_run(app, redis.Redis.from_url(servers.redis_url), topology)


@pytest.mark.timeout(240)  # it does not try again and again
@pytest.mark.parametrize("url", ["amqp://guest:guest@127.0.0.1:1//", "redis://127.0.0.1:1/0"])
def test_depths_are_unknown_while_the_broker_is_away(url: str, run_name: str) -> None:
    topology = Topology(run_name)
    assert Depths(create_app(topology, url, "redis://127.0.0.1:1/0"), topology).read() == {}
