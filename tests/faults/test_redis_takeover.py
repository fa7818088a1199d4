"""A Redis with a replica and three sentinels: its master is killed, and everything goes on with the replica."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from brokers import lacking
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry
from store_fixtures import assert_replayed
from waiting import until

from league.models.pool import Pool
from league.redis.store import Report, Store
from tasks.app import create_app
from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError
from workers.servers import Machine, check_redis
from workers.servers.process import Child, free_port

pytestmark = pytest.mark.servers
SERVICE = "main"
DOWN_AFTER = 1000  # ms; longer than a busy machine keeps a Redis from answering


@dataclass
class Place:
    url: str
    master: Child
    ports: list[int]  # the master's, the replica's


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A master, its replica and three sentinels, on ports and with a password of their own."""
    binary = Machine().redis()
    if binary is None:
        lacking("no redis-server")
    password, ports, watching = secrets.token_hex(8), [free_port(), free_port()], [free_port() for _ in range(3)]
    children: list[Child] = []

    def start(name: str, *lines: str, arguments: tuple[str, ...] = ()) -> Child:
        conf = tmp_path / f"{name}.conf"
        conf.write_text("\n".join(("bind 127.0.0.1", f'dir "{tmp_path}"', *lines, "")))
        children.append(Child(name, [binary, conf, *arguments], tmp_path / f"{name}.log", grace=0.0))
        return children[-1]

    try:
        common = (f"requirepass {password}", f"masterauth {password}", 'save ""', "repl-diskless-sync-delay 0")
        master = start("master", f"port {ports[0]}", *common)
        start("replica", f"port {ports[1]}", *common, f"replicaof 127.0.0.1 {ports[0]}")
        follower = redis_client.connect(f"redis://:{password}@127.0.0.1:{ports[1]}/0", retry=Retry(NoBackoff(), 0))
        until(lambda: _follows(follower), "the replica follows")  # or sentinels would look again after ten seconds only
        for number, port in enumerate(watching):
            start(
                f"sentinel-{number}", f"port {port}",
                f"sentinel monitor {SERVICE} 127.0.0.1 {ports[0]} 2", f"sentinel auth-pass {SERVICE} {password}",
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
                f"sentinel failover-timeout {SERVICE} 5000", arguments=("--sentinel",),
            )  # fmt: skip
        hosts = ",".join(f"127.0.0.1:{port}" for port in watching)
        until(lambda: all(_sees_all(port) for port in watching), "sentinels know each other and the replica", 60)
        yield Place(f"sentinel://:{password}@{hosts}/{SERVICE}/0", master, ports)
    finally:
        for child in children:
            child.stop()


def _follows(replica: redis.Redis) -> bool:
    try:
        return replica.info("replication").get("master_link_status") == "up"
    except redis.RedisError:
        return False


def _sees_all(port: int) -> bool:
    with redis_client.connect(f"redis://127.0.0.1:{port}/0", retry=Retry(NoBackoff(), 0)) as sentinel:
        try:
            known, replicas = sentinel.sentinel_masters()[SERVICE], sentinel.sentinel_slaves(SERVICE)
        except redis.RedisError:
            return False
    return known["num-other-sentinels"] == 2 and [one["master-link-status"] for one in replicas] == ["ok"]


def test_league_models_claims_and_results_go_on_with_the_replica_that_took_over(place: Place, run_name: str) -> None:
    check_redis(place.url)
    with pytest.raises(BrokerError, match="no sentinel that answers knows one"):
        check_redis(place.url.replace(f"/{SERVICE}/", "/other/"))
    topology = Topology(run_name)
    app = create_app(topology, "memory://", place.url, claim_threshold=100)
    client = redis_client.connect(place.url, retry=Retry(ConstantBackoff(0.2), 150))
    replica = redis_client.connect_to_replica(place.url)
    assert replica is not None and redis_client.host_of(client) == "127.0.0.1"
    pool = Pool(client, topology.key_prefix, replica=replica)
    store = Store(client, f"{topology.key_prefix}league:")
    store.create()
    store.add_player("main", "main_agent")
    store.snapshot("main", 1)
    match = store.request("main", "actor", 600.0)
    pool.put("main", 1, 100, b"one" * 1000)
    claim = app.warren_claims.check_in(b"x" * 1000)
    app.backend.store_result("before", "kept", "SUCCESS")
    heard: list[object] = []
    waited_for = app.AsyncResult("after")
    waited_for.then(lambda ready: heard.append(ready.result))
    assert client.wait(1, 30_000) == 1  # replication is asynchronous: only what has arrived outlives the master

    held = client.connection_pool.get_connection()  # amid a command when the master is killed

    place.master.kill()
    assert store.report(match.match, "w") == Report("counted")  # waits until the replica has taken over
    assert store.report(match.match, "w") == Report("refused", "duplicate")
    assert_replayed(store)
    assert pool.put("main", 2, 200, b"two" * 1000)
    assert client.connection_pool.get_master_address() == ("127.0.0.1", place.ports[1])
    held.disconnect()
    held.send_command("PING")
    assert held.read_response() == b"PONG"
    client.connection_pool.release(held)
    fresh = Pool(client, topology.key_prefix, replica=replica)
    assert (fresh.get("main", 1).data, fresh.get("main", 2).data) == (b"one" * 1000, b"two" * 1000)
    assert app.warren_claims.redeem(claim) == b"x" * 1000
    assert app.AsyncResult("before").get(timeout=30) == "kept"
    app.backend.store_result("after", "heard", "SUCCESS")
    until(lambda: heard or app.backend.result_consumer.drain_events(timeout=0.1), "the result")
    assert heard == ["heard"]
