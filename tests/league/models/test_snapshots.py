"""league.models: a league saved and restored elsewhere; models spilled and brought back."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from support.own_redis import OwnRedis
from support.store_fixtures import assert_replayed, folded, store_on
from support.waiting import until

from league.matchmaking.view import ModelRef
from league.models import pool as pool_module
from league.models.keeper import Keeper
from league.models.pool import Pool
from league.models.saved_stream import SavedStream
from league.models.snapshots import Snapshots
from league.redis.store import Report, Store
from league.state.periods import Periods
from warren.errors import CheckpointError, LeagueError, PoolError


def weights(seed: int, size: int = 1000) -> bytes:
    return save({"layer": np.random.default_rng(seed).normal(size=size).astype(np.float32)})


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    return store_on(redis_url, f"{run_name}")


@pytest.fixture
def pool(store: Store, run_name: str) -> Pool:
    return Pool(store.redis, f"{run_name}:", cache_bytes=0)


def play(store: Store, pool: Pool, seed: int = 0, games: int = 60) -> None:
    """Give a league a history, open matches and an open period."""
    rng, periods = np.random.default_rng(seed), Periods(store)
    few = {"checkpoint_min_steps": 10, "checkpoint_max_steps": 50}
    store.add_player("main", "main_agent", few, rules={"lr": {"rule": "log_uniform", "low": 1e-5, "high": 1e-3}})
    store.add_player("hunter", "main_exploiter", few, initial=ModelRef("main", 1))
    pool.put("main", 1, 0, weights(1))
    pool.freeze("main", 1)
    for number in range(2, games):
        name = ("main", "hunter")[number % 2]
        match = store.request(name, "actor", 600.0)
        if number % 9:
            store.report(match.id, "".join(rng.choice(list("wdl"), size=2)))
        if number % 10 == 0:
            period = periods.open(name, "learner", 600.0)
            pool.put(name, number, period.steps + 60, weights(number), parent=period.model)
            pool.freeze(name, number)
            periods.close(period, period.steps + 60, number)
        else:
            pool.put(name, number, number, weights(number))
    periods.open("main", "learner", 600.0)


def test_a_league_restored_on_another_server_is_equal_bit_by_bit_and_continues(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path
) -> None:
    play(store, pool)
    pool.describe(ModelRef("main", 1), note="first")
    Snapshots(tmp_path / "saved", store, pool).save()
    live = store.load()

    there = Store(own_redis.client, f"{run_name}:league:", seed=1)
    their_pool = Pool(own_redis.client, f"{run_name}:")
    restored = Snapshots(tmp_path / "saved", there, their_pool).restore()
    assert live.differences(restored) == [] == live.differences(there.load()) == live.differences(folded(there))
    assert there.last_event() == store.last_event()

    newest = {info.player: info.version for info in pool.models()}
    wanted = [info for info in pool.models() if info.frozen or info.version == newest[info.player]]
    assert len(wanted) > 5 and their_pool.models() == wanted
    for info in wanted:
        assert their_pool.get(*info.ref).data == pool.get(*info.ref).data

    # Open matches can be reported, an open period continues, and new matches are issued.
    assert len(live.matches) > 3
    for match in live.matches:
        assert there.report(match, "w") == Report("counted")
    assert Periods(there).open("main", "learner", 60.0).number == live.progress["main"].period
    there.report(there.request("hunter", "actor", 60.0).id, "l")
    there.snapshot("main", newest["main"])
    assert_replayed(there)


def test_saving_again_adds_what_is_new(store: Store, pool: Pool, tmp_path: Path) -> None:
    play(store, pool)
    snapshots = Snapshots(tmp_path, store, pool)
    snapshots.save()
    before = (tmp_path / "league.jsonl").read_text()
    store.report(store.request("main", "actor", 60.0).id, "w")
    snapshots.save()
    after = (tmp_path / "league.jsonl").read_text()
    assert after.startswith(before) and len(after.splitlines()) == len(before.splitlines()) + 2
    # Another process that takes over continues at the end of the file.
    Snapshots(tmp_path, store, pool).save()
    assert (tmp_path / "league.jsonl").read_text() == after


def test_a_line_that_a_crash_cut_off_is_written_again(store: Store, pool: Pool, tmp_path: Path) -> None:
    play(store, pool)
    Snapshots(tmp_path, store, pool).save()
    stream = tmp_path / "league.jsonl"
    whole = stream.read_bytes()
    stream.write_bytes(whole[:-30])
    Snapshots(tmp_path, store, pool).save()
    assert stream.read_bytes() == whole


def test_a_save_that_a_crash_cut_short_keeps_the_models_of_the_saved_stream(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both those that the old stream needs and those that the new one names, wherever the crash cuts it."""
    play(store, pool)
    Snapshots(tmp_path, store, pool).save()
    pool.put("main", 100, 0, weights(100))
    pool.freeze("main", 100)
    store.snapshot("main", 100)
    pool.remove(ModelRef("main", 1), frozen=True)
    for place, names in ((SavedStream, "follow"), (Snapshots, "_save_returns")):
        with monkeypatch.context() as patched:
            patched.setattr(place, names, crash)
            with pytest.raises(KeyboardInterrupt):
                Snapshots(tmp_path, store, pool).save()
        own_redis.client.flushall()
        there, their_pool = Store(own_redis.client, f"{run_name}:league:"), Pool(own_redis.client, f"{run_name}:")
        restored = Snapshots(tmp_path, there, their_pool).restore()
        assert ("main@100" in restored.players) == (place is Snapshots)
        assert {str(info.ref) for info in their_pool.models("main")} >= {"main@1", "main@100"}
    Snapshots(tmp_path, store, pool).save()
    assert not (tmp_path / "models" / "main@1.safetensors").exists()


def crash(*given: object) -> None:
    raise KeyboardInterrupt


def test_files_of_weights_that_are_no_longer_newest_are_removed(store: Store, pool: Pool, tmp_path: Path) -> None:
    store.add_player("main", "self_play")
    snapshots = Snapshots(tmp_path, store, pool)
    for version in range(1, 8):
        pool.put("main", version, 0, weights(version))
        snapshots.save()
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"main@6.safetensors", "main@7.safetensors"}


def test_a_league_is_not_restored_over_another_nor_from_an_empty_folder(
    store: Store, pool: Pool, tmp_path: Path
) -> None:
    with pytest.raises(LeagueError, match=r"league\.jsonl is missing or empty"):
        Snapshots(tmp_path, store, pool).restore()
    play(store, pool)
    snapshots = Snapshots(tmp_path, store, pool)
    snapshots.save()
    with pytest.raises(LeagueError, match="holds a league"):
        snapshots.restore()


def test_a_damaged_file_is_not_restored(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path
) -> None:
    play(store, pool)
    Snapshots(tmp_path / "saved", store, pool).save()
    path = tmp_path / "saved" / "models" / "main@1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    there = Store(own_redis.client, f"{run_name}:league:")
    with pytest.raises(CheckpointError, match=r"main@1\.safetensors is missing or damaged"):
        Snapshots(tmp_path / "saved", there, Pool(own_redis.client, f"{run_name}:")).restore()


@pytest.mark.parametrize("name", ["models.json", "returns.json", "mixture.json", "people.json"])
def test_a_damaged_table_of_a_snapshot_is_named(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path, name: str
) -> None:
    play(store, pool)
    Snapshots(tmp_path, store, pool).save()
    there = Snapshots(tmp_path, Store(own_redis.client, f"{run_name}:league:"), Pool(own_redis.client, f"{run_name}:"))
    damages = {"[[1,2": "is not JSON", '[{"a": "b"}]': "holds something else", "7": "holds something else"}
    for damage, found in damages.items():
        (tmp_path / name).write_text(damage)
        with pytest.raises(LeagueError, match=f"{name} {found} .*; restore the file from a backup"):
            there.restore()


@pytest.mark.parametrize("cell", ["[-1,0,5,1,1]", "[0,1,-5,1,1]", "[0,1,5,NaN,1]", "[0,9999999,5,1,1]"])
def test_a_cell_that_cannot_be_leaves_redis_as_it_was(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path, cell: str
) -> None:
    play(store, pool)
    Snapshots(tmp_path, store, pool).save()
    (tmp_path / "returns.json").write_text(f"[{cell}]")
    there = Snapshots(tmp_path, Store(own_redis.client, f"{run_name}:league:"), Pool(own_redis.client, f"{run_name}:"))
    with pytest.raises(LeagueError, match=r"returns\.json holds something else .*; restore the file from a backup"):
        there.restore()
    assert own_redis.client.keys(f"{run_name}:*") == []  # also no models, as of a run without a league


def test_a_file_of_another_name_is_neither_removed_nor_in_the_way(store: Store, pool: Pool, tmp_path: Path) -> None:
    play(store, pool)
    snapshots = Snapshots(tmp_path, store, pool)
    snapshots.save()
    copy = snapshots.files.folder / "main@1 (copy).safetensors"
    copy.write_bytes(b"a person's")
    snapshots.save()
    assert copy.read_bytes() == b"a person's"


def test_a_killed_redis_comes_back_with_all_acknowledged_writes(own_redis: OwnRedis, run_name: str) -> None:
    store = Store(own_redis.client, f"{run_name}:league:", seed=0)
    store.create()
    pool = Pool(own_redis.client, f"{run_name}:", cache_bytes=0)
    play(store, pool)
    live, models = store.load(), pool.models()
    own_redis.kill()
    own_redis.start()
    assert live.differences(store.load()) == [] == live.differences(folded(store))
    assert pool.models() == models
    for info in models:
        assert pool.get(*info.ref).version == info.version
    store.report(store.request("main", "actor", 60.0).id, "w")
    assert_replayed(store)


# The keeper.


@pytest.fixture
def keeper(store: Store, pool: Pool, tmp_path: Path) -> Keeper:
    return Keeper(store, pool, tmp_path / "kept", memory_bound=3 * len(weights(0)), every=3600.0)


def frozen(pool: Pool, versions: range) -> None:
    for version in versions:
        pool.put("main", version, 0, weights(version))
        pool.freeze("main", version)


def places(pool: Pool) -> dict[int, str]:
    return {info.version: info.place for info in pool.models()}


def test_a_frozen_model_is_saved_as_soon_as_the_keeper_looks(pool: Pool, keeper: Keeper) -> None:
    keeper.step()
    frozen(pool, range(1, 3))
    keeper.step()
    for version in (1, 2):
        assert (keeper.files.folder / f"main@{version}.safetensors").read_bytes() == weights(version)


def test_the_least_used_frozen_models_are_spilled_beyond_the_bound(pool: Pool, keeper: Keeper) -> None:
    frozen(pool, range(1, 6))
    pool.get("main", 1)
    pool.put("main", 9, 0, weights(9))
    assert [ref.version for ref in keeper.spill()] == [2, 3]
    assert places(pool) == {1: "redis", 2: "disk", 3: "disk", 4: "redis", 5: "redis", 9: "redis"}
    assert not pool.redis.exists(f"{pool.prefix}data:main@2")
    assert keeper.spill() == []


def test_models_take_at_most_half_of_the_bound_of_redis(own_redis: OwnRedis, run_name: str, tmp_path: Path) -> None:
    store = Store(own_redis.client, f"{run_name}:league:", seed=0)
    store.create()
    pool = Pool(own_redis.client, f"{run_name}:")
    keeper = Keeper(store, pool, tmp_path / "kept", memory_bound=4 << 30, every=3600.0)
    size = 8 << 20
    for version in range(1, 6):
        pool.put("main", version, 0, bytes(size))
        pool.freeze("main", version)
    assert keeper.spill() == []
    own_redis.client.config_set("maxmemory", 9 * size)  # half of it has room for four
    assert [ref.version for ref in keeper.spill()] == [1]
    assert places(pool)[2] == "redis"


def test_a_spilled_model_comes_back_when_it_is_read(pool: Pool, keeper: Keeper, run_name: str) -> None:
    frozen(pool, range(1, 6))
    keeper.spill()
    # A process that does not see the folder asks the keeper.
    stopping = threading.Event()
    thread = threading.Thread(target=keeper.run, args=(stopping,))
    thread.start()
    try:
        assert pool.get("main", 1).data == weights(1)
        assert places(pool)[1] == "redis"
        # It counts as used, so another is spilled next.
        frozen(pool, range(6, 7))
        until(lambda: places(pool)[3] == "disk")
        assert places(pool)[1] == "redis"
    finally:
        stopping.set()
        thread.join()
    # A process that sees the folder reads the model itself.
    assert places(pool)[2] == "disk"
    near = Pool(pool.redis, f"{run_name}:", folder=keeper.files.folder)
    assert near.get("main", 2).data == weights(2) and places(pool)[2] == "redis"


def test_without_a_keeper_reading_a_spilled_model_is_an_error(pool: Pool, keeper: Keeper, run_name: str) -> None:
    frozen(pool, range(1, 6))
    keeper.spill()
    with pytest.raises(PoolError, match="main@1 was spilled to disk and was not brought back"):
        Pool(pool.redis, f"{run_name}:", patience=0.05).get("main", 1)


def test_a_keeper_that_died_with_a_request_is_asked_again(
    pool: Pool, keeper: Keeper, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "ASK_EVERY", 0.02)
    frozen(pool, range(1, 6))
    keeper.spill()
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(Pool(pool.redis, f"{run_name}:").get("main", 1).data))
    reader.start()
    wanted = f"{pool.prefix}wanted"
    until(lambda: b"main@1" in pool.redis.lrange(wanted, 0, -1))
    pool.redis.delete(wanted)  # as a keeper does that is then killed
    until(lambda: b"main@1" in pool.redis.lrange(wanted, 0, -1))
    until(lambda: keeper.step() or not reader.is_alive())
    reader.join()
    assert found == [weights(1)]


def test_unfrozen_models_are_never_spilled(pool: Pool) -> None:
    pool.put("main", 1, 0, weights(1))
    assert pool.spill(ModelRef("main", 1)) is False
    assert pool.get("main", 1).data == weights(1)


def test_a_snapshot_of_a_league_with_spilled_models_is_whole(
    store: Store, pool: Pool, keeper: Keeper, run_name: str, own_redis: OwnRedis
) -> None:
    store.add_player("main", "self_play")
    frozen(pool, range(1, 7))
    keeper.spill()
    keeper.snapshots.save()
    their_pool = Pool(own_redis.client, f"{run_name}:")
    Snapshots(keeper.snapshots.folder, Store(own_redis.client, f"{run_name}:league:"), their_pool).restore()
    assert [their_pool.get("main", version).data for version in range(1, 7)] == [weights(v) for v in range(1, 7)]


def test_freezing_works_with_and_without_an_append_only_file(own_redis: OwnRedis) -> None:
    """Freezing waits until Redis has the model on disk, and does not wait if Redis cannot tell."""
    pool = Pool(own_redis.client, "durable:")
    for setting in ("yes", "no"):
        own_redis.client.config_set("appendonly", setting)
        version = 1 if setting == "yes" else 2
        pool.put("main", version, 0, weights(version))
        assert pool.freeze("main", version) == ModelRef("main", version)
    assert [info.frozen for info in pool.models()] == [True, True]
