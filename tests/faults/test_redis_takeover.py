"""Test of a Redis with a replica and three sentinels: its master is killed, and all clients use the replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from support.brokers import lacking
from support.store_fixtures import assert_replayed
from support.waiting import PATIENCE, until

from benchmarks.apparatus import redis_sentinels
from benchmarks.apparatus.redis_sentinels import SERVICE, Sentinels
from league.models.pool import Pool
from league.redis.store import Report, Store
from tasks.app import create_app
from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError
from workers.servers import Machine, check_redis

pytestmark = pytest.mark.servers


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sentinels]:
    # A master that a busy machine stalls for some seconds does not count as dead.
    monkeypatch.setattr(redis_sentinels, "DOWN_AFTER", 6000)
    binary = Machine().redis()
    if binary is None:
        lacking("no redis-server")
    sentinels = Sentinels(binary, tmp_path)
    yield sentinels
    sentinels.stop()


def test_league_models_claims_and_results_go_on_with_the_replica_that_took_over(
    place: Sentinels, run_name: str
) -> None:
    check_redis(place.url)
    with pytest.raises(BrokerError, match="no sentinel that answers knows one"):
        check_redis(place.url.replace(f"/{SERVICE}/", "/other/"))
    topology = Topology(run_name)
    app = create_app(topology, "memory://", place.url, claim_threshold=100)
    client = redis_client.connect(place.url, retry=Retry(ConstantBackoff(0.2), 600))
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
    assert client.wait(1, 120_000) == 1  # replication is asynchronous: wait until the replica has all

    held = client.connection_pool.get_connection()  # in use when the master is killed

    place.master.kill()
    assert store.report(match.id, "w") == Report("counted")  # waits until the replica has taken over
    assert store.report(match.id, "w") == Report("refused", "duplicate")
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
    assert app.AsyncResult("before").get(timeout=PATIENCE) == "kept"
    app.backend.store_result("after", "heard", "SUCCESS")
    until(lambda: heard or app.backend.result_consumer.drain_events(timeout=0.1), "the result")
    assert heard == ["heard"]
