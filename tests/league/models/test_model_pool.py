"""league.models.pool on a real Redis: versions, freezing, listing, lineage, damage and concurrent use."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from safetensors.numpy import save
from xxhash import xxh3_64_intdigest

from league.matchmaking.view import ModelRef
from league.models.pool import Pool
from warren.errors import CheckpointError, PoolError


def weights(seed: int, size: int = 1000) -> bytes:
    return save({"layer": np.random.default_rng(seed).normal(size=size).astype(np.float32)})


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def pool(client: redis.Redis, run_name: str) -> Pool:
    return Pool(client, f"{run_name}:", patience=0.2)


def other(pool: Pool, run_name: str, **options: object) -> Pool:
    """Return the pool as another process sees it, with a cache of its own."""
    return Pool(pool.redis, f"{run_name}:", **options)  # type: ignore[arg-type]


def test_a_put_model_is_read_back_with_its_version_and_step(pool: Pool, run_name: str) -> None:
    assert pool.put("main", 3, 4800, weights(1))
    for found in (pool.get("main", 3), pool.newest("main"), other(pool, run_name).newest("main")):
        assert found is not None
        assert (found.player, found.version, found.step, found.data) == ("main", 3, 4800, weights(1))
    assert pool.version("main") == 3 and pool.version("nobody") is None and pool.newest("nobody") is None


def test_a_freeze_waits_for_the_disk_by_its_own_connection(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another one, Redis would not wait; other threads may take a connection as soon as it is free."""
    pool.put("main", 1, 0, weights(1))
    connections = pool.redis.connection_pool
    release, send, taken, sent = connections.release, connections.connection_class.send_command, [], {}

    def release_to_another(connection: Any) -> None:
        release(connection)
        taken.append(connections.get_connection())

    def note(connection: Any, *words: Any, **options: Any) -> None:
        sent[words[0]] = connection
        send(connection, *words, **options)

    monkeypatch.setattr(connections.connection_class, "send_command", note)
    with monkeypatch.context() as busy:
        busy.setattr(connections, "release", release_to_another)
        pool.freeze("main", 1)
    for connection in taken:
        release(connection)
    assert sent["EVALSHA"] is sent["WAITAOF"]


def test_the_master_serves_weights_that_the_replica_lacks_or_has_wrong(pool: Pool, run_name: str) -> None:
    class Replica:
        def __init__(self, data: bytes | None) -> None:
            self.data = data

        def get(self, key: str) -> bytes | None:
            if self.data == b"away":
                raise redis.ConnectionError("no replica answers")
            return self.data

    pool.put("main", 1, 0, weights(1))
    for data in (None, b"of before a takeover", b"away"):
        assert other(pool, run_name, replica=Replica(data)).get("main", 1).data == weights(1)
    pool.redis.delete(f"{pool.prefix}data:main@1")
    assert other(pool, run_name, replica=Replica(weights(1))).get("main", 1).data == weights(1)


def test_newest_returns_only_newer_weights(pool: Pool) -> None:
    pool.put("main", 3, 0, weights(1))
    assert pool.newest("main", newer_than=3) is None
    found = pool.newest("main", newer_than=2)
    assert found is not None and found.version == 3


def test_a_late_writer_never_replaces_newer_weights(pool: Pool, client: redis.Redis) -> None:
    assert pool.put("main", 5, 0, weights(5))
    assert not pool.put("main", 5, 0, weights(6)) and not pool.put("main", 4, 0, weights(4))
    assert pool.get("main", 5).data == weights(5)
    # The weights of refused writes are removed.
    assert list(client.scan_iter(f"{pool.prefix}sent:*")) == []


def test_only_the_newest_unfrozen_versions_are_kept(pool: Pool) -> None:
    for version in range(1, 6):
        pool.put("main", version, 0, weights(version))
    assert [info.version for info in pool.models()] == [4, 5]
    with pytest.raises(PoolError, match=r"main@2 is not in the pool: .* freeze what has to last"):
        pool.get("main", 2)


def test_a_frozen_version_stays_and_does_not_change(pool: Pool, run_name: str) -> None:
    pool.put("main", 1, 10, weights(1))
    assert pool.freeze("main") == ModelRef("main", 1) == pool.freeze("main", 1)
    for version in range(2, 9):
        pool.put("main", version, 0, weights(version))
    assert [(info.version, info.frozen) for info in pool.models("main")] == [(1, True), (7, False), (8, False)]
    assert not pool.put("main", 1, 0, weights(99))
    assert other(pool, run_name).get("main", 1).data == weights(1)
    with pytest.raises(PoolError, match="main@1 is frozen"):
        pool.remove(ModelRef("main", 1))


def test_a_missing_model_cannot_be_frozen(pool: Pool) -> None:
    for version in (None, 4):
        with pytest.raises(PoolError, match="cannot be frozen; put it first"):
            pool.freeze("main", version)


def test_models_are_listed_without_their_bytes(pool: Pool, client: redis.Redis) -> None:
    data = weights(1)
    pool.put("main", 1, 7, data)
    pool.put("rival", 4, 9, weights(2))
    client.delete(f"{pool.prefix}data:main@1", f"{pool.prefix}data:rival@4")
    main, rival = pool.models()
    assert (main.player, main.version, main.step, main.size) == ("main", 1, 7, len(data))
    assert main.checksum == xxh3_64_intdigest(data) and main.place == "redis" and not main.frozen
    assert rival.ref == ModelRef("rival", 4)


def test_attributes_can_be_set_on_frozen_models_too_and_hold_any_json(pool: Pool) -> None:
    pool.put("main", 1, 0, weights(1))
    pool.freeze("main", 1)
    pool.describe(ModelRef("main", 1), note="béste", win_rate=0.75)
    pool.describe(ModelRef("main", 1), tags=["a", {"b": None}], win_rate=0.8)
    info = pool.info(ModelRef("main", 1))
    assert info is not None
    assert info.attributes == {"note": "béste", "win_rate": 0.8, "tags": ["a", {"b": None}]}
    with pytest.raises(PoolError, match="main@2 is not in the pool"):
        pool.describe(ModelRef("main", 2), note="")


def test_the_lineage_goes_back_to_the_first(pool: Pool) -> None:
    pool.put("main", 1, 0, weights(1))
    pool.freeze("main", 1)
    pool.put("main", 8, 0, weights(2), parent=ModelRef("main", 1))
    pool.put("hunter", 2, 0, weights(3), parent=ModelRef("main", 8))
    line = pool.lineage(ModelRef("hunter", 2))
    assert line == [ModelRef("hunter", 2), ModelRef("main", 8), ModelRef("main", 1)]


def test_damaged_weights_are_refused(pool: Pool, client: redis.Redis) -> None:
    pool.put("main", 1, 0, weights(1))
    client.setrange(f"{pool.prefix}data:main@1", 200, b"\xff\x00\xff")
    with pytest.raises(CheckpointError, match="main@1 are damaged"):
        pool.get("main", 1)


def test_an_error_explains_weights_that_redis_evicted(pool: Pool, client: redis.Redis) -> None:
    pool.put("main", 1, 0, weights(1))
    client.delete(f"{pool.prefix}data:main@1")
    with pytest.raises(PoolError, match="maxmemory-policy has to be noeviction"):
        pool.newest("main")


def test_a_removed_model_is_gone_and_the_one_before_is_the_newest(pool: Pool) -> None:
    pool.put("main", 1, 0, weights(1))
    pool.put("main", 2, 0, weights(2))
    pool.freeze("main", 2)
    pool.get("main", 2)
    pool.remove(ModelRef("main", 2), frozen=True)
    assert pool.version("main") == 1
    with pytest.raises(PoolError):
        pool.get("main", 2)
    pool.remove(ModelRef("main", 1))
    assert pool.version("main") is None and pool.models() == []
    with pytest.raises(PoolError, match="is not in the pool"):
        pool.remove(ModelRef("main", 1))


def test_cached_weights_are_not_fetched_again(pool: Pool, client: redis.Redis, run_name: str) -> None:
    pool.put("main", 1, 0, weights(1))
    pool.get("main", 1)
    client.delete(f"{pool.prefix}data:main@1")
    assert pool.get("main", 1).data == weights(1)
    with pytest.raises(PoolError):
        other(pool, run_name, patience=0.05).get("main", 1)


def test_the_cache_drops_the_least_used_beyond_its_bound(pool: Pool, client: redis.Redis, run_name: str) -> None:
    size = len(weights(0))
    for version in (1, 2, 3):
        pool.put("main", version, 0, weights(version))
        pool.freeze("main", version)
    small = other(pool, run_name, cache_bytes=2 * size, patience=0.05)
    for version in (1, 2, 1, 3):
        small.get("main", version)
    client.delete(*(f"{pool.prefix}data:main@{version}" for version in (1, 2, 3)))
    assert small.get("main", 1).data == weights(1) and small.get("main", 3).data == weights(3)
    with pytest.raises(PoolError):
        small.get("main", 2)


@pytest.mark.parametrize("name", ["", "a/b", "../up", "main@1", "a:b", "x" * 101])
def test_a_name_that_could_be_another_key_or_path_is_refused(pool: Pool, name: str) -> None:
    with pytest.raises(PoolError, match="choose another"):
        pool.put(name, 1, 0, weights(1))


def test_many_writers_and_readers_see_whole_versions_that_only_go_up(pool: Pool, run_name: str) -> None:
    errors: list[BaseException] = []
    done = threading.Event()

    def write(first: int) -> None:
        mine = other(pool, run_name)
        for version in range(first, 120, 3):
            mine.put("main", version, version, weights(version))

    def read() -> None:
        mine, seen = other(pool, run_name, cache_bytes=0), -1
        try:
            while not done.is_set():
                found = mine.newest("main", newer_than=seen)
                if found is not None:
                    assert found.version > seen and found.data == weights(found.version)
                    seen = found.version
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=write, args=(first,)) for first in range(3)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert errors == [] and pool.version("main") == 119


def test_a_model_of_20_mb_is_read_back(pool: Pool, run_name: str) -> None:
    data = weights(1, size=5_000_000)
    pool.put("main", 1, 0, data)
    assert other(pool, run_name).get("main", 1).data == data


def test_a_server_that_lost_its_scripts_is_given_them_again(pool: Pool, client: redis.Redis, tmp_path: Path) -> None:
    pool.put("main", 1, 0, weights(1))
    client.script_flush()
    assert pool.put("main", 2, 0, weights(2)) and pool.get("main", 2).data == weights(2)
    client.script_flush()
    assert pool.freeze("main", 2) == ModelRef("main", 2)
