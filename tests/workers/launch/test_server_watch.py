"""Tests of the launcher's watch over the run's servers."""

from __future__ import annotations

import pytest
import redis
from kombu.exceptions import OperationalError
from support.waiting import until

from tasks.admin.cleanup import Depths, remove_run, waiting
from tasks.app import create_app
from tasks.topology import Topology
from workers.launch.watching import server_watch
from workers.launch.watching.server_watch import ServerWatch
from workers.servers import Servers


def test_a_missing_dead_letter_queue_is_declared_anew(
    servers: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_watch, "RENEWED_EVERY", 0.0)
    monkeypatch.setattr(server_watch, "POLL_EVERY", 0.05)
    topology = Topology(run_name)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    dead = topology.dead_queue("learner")
    with app.connection_for_write() as connection:
        for queue in topology.task_queues():
            queue(connection.default_channel).declare()

        def is_there() -> bool:
            try:
                return waiting(connection, dead) == 0
            except (*connection.channel_errors, OperationalError):
                connection.close()
                return False

        assert not is_there()
        watch = ServerWatch(app, servers.redis_url, Depths(app, topology))
        watch.start()
        try:
            until(is_there)
        finally:
            watch.stop()
        assert watch.depths_now() == {"actor.main": 0, "learner.main": 0}
    remove_run(app, redis.Redis.from_url(servers.redis_url), topology)
