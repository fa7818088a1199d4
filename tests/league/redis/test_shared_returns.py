"""league.redis.shared_returns: equal to Returns bit by bit, with several evaluators and repeated calls."""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.own_redis import OwnRedis
from support.store_fixtures import store_on

from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import MixtureSettings
from league.empirical_game.returns import Returns
from league.models.pool import Pool
from league.models.snapshots import Snapshots, returns_in
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from warren.errors import ConfigurationError

SLOTS = np.arange(6)


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


def assert_equal(found: Returns, expected: Returns, slots: np.ndarray = SLOTS) -> None:
    assert np.array_equal(found.games(slots), expected.games(slots))
    assert np.array_equal(found.matrix(slots), expected.matrix(slots))
    assert np.array_equal(found.errors(slots), expected.errors(slots))
    assert found.total_games == expected.total_games


games = st.lists(st.floats(-1e6, 1e6), max_size=5)
adding = st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5), games)
refreshing = st.tuples(st.integers(0, 2))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(adding, refreshing), max_size=25))
def test_returns_of_three_evaluators_equal_those_of_one(client: redis.Redis, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    prefix = f"test-{secrets.token_hex(6)}:"
    evaluators, expected = [SharedReturns(client, prefix) for _ in range(3)], Returns()
    for who, *added in steps:
        if not added:
            evaluators[who].refresh()
            assert_equal(evaluators[who], expected)
        else:
            first, second, returns = added
            evaluators[who].record(first, second, returns)
            expected.record(first, second, returns)
            # An evaluator sees its own games at once, with those of others in the same cell.
            cell = np.array([first, second])
            assert evaluators[who].games(cell)[0, 1] == expected.games(cell)[0, 1]
    for evaluator in [*evaluators, SharedReturns(client, prefix)]:  # the last one has just been started
        evaluator.refresh()
        assert_equal(evaluator, expected)


def test_additions_at_the_same_time_are_all_counted(redis_url: str, run_name: str) -> None:
    def evaluate(seed: int) -> None:
        own = SharedReturns(redis.Redis.from_url(redis_url), run_name)
        for number in range(200):
            own.record(number % 3, seed % 3, [1.0, -2.0])
            if number % 7 == 0:
                own.refresh()

    threads = [threading.Thread(target=evaluate, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = SharedReturns(redis.Redis.from_url(redis_url), run_name)
    found.refresh()
    assert found.total_games == 4 * 200 * 2
    assert set(found.matrix(np.arange(3)).ravel()) == {-0.5}


def test_an_addition_that_is_sent_again_counts_once(client: redis.Redis, run_name: str) -> None:
    returns = SharedReturns(client, run_name)
    returns.record(0, 1, [1.0, 2.0])
    returns._calls -= 1  # as if the connection resent the call after a lost answer
    returns.record(0, 1, [1.0, 2.0])
    assert returns.total_games == 2 and returns.matrix(np.arange(2))[0, 1] == 1.5
    returns.record(0, 1, [6.0])
    assert returns.total_games == 3 and returns.matrix(np.arange(2))[0, 1] == 3.0


def test_a_refresh_reads_changed_cells_and_only_two_values_without_changes(client: redis.Redis, run_name: str) -> None:
    one, other = SharedReturns(client, run_name), SharedReturns(client, run_name)
    for first in range(4):
        one.record(first, 5, [1.0])
    assert (other.refresh(), other.refresh()) == (4, 0)
    one.record(2, 5, [1.0])
    assert other.refresh() == 1 and other.games(SLOTS)[2, 5] == 2
    sent: list[str] = []
    with client.monitor() as monitor:
        other.refresh()
        client.echo("over")
        for command in monitor.listen():
            if command["command"] == "ECHO over":
                break
            if run_name in command["command"]:
                sent.append(command["command"])
    assert sent == [f"MGET {run_name}returns:version {run_name}returns:settings"]


def test_pairs_count_for_both_cells_and_are_not_mixed_with_games(client: redis.Redis, run_name: str) -> None:
    one, other, expected = SharedReturns(client, run_name), SharedReturns(client, run_name), Returns()
    for returns in (one, expected):
        returns.settings = MixtureSettings(source="pairs")
        returns.record(1, 4, [0.5, -1.0, 2.0])
        returns.record(2, 1, [0.25])
    assert (other.refresh(), other.version) == (4, 2)
    for returns in (one, other):
        assert_equal(returns, expected)
        assert returns.matrix(SLOTS)[4, 1] == -0.5 and returns.found_by() == "pairs"
    for source in ("games", "exact"):
        third = SharedReturns(client, run_name)
        third.settings = MixtureSettings(source=source)
        with pytest.raises(ConfigurationError, match=f"are of 'pairs', not of '{source}'; go on with .*=pairs"):
            third.refresh()


def test_exact_cells_that_two_evaluators_add_count_once_and_stay_exact(client: redis.Redis, run_name: str) -> None:
    one, other, alone = SharedReturns(client, run_name), SharedReturns(client, run_name), Returns()
    for returns in (one, other, alone):
        returns.settings = MixtureSettings(source="exact")
    for returns in (one, other, alone, alone):  # both evaluators found the same cells missing
        returns.add_cells([(0, 1, 1.0, 0.5, 0.25), (1, 0, 1.0, -0.5, 0.25)])
    other.add_cells([(0, 1, 1.0, 0.5, 0.25), (2, 1, 1.0, 1.0, 1.0)])
    alone.add_cells([(2, 1, 1.0, 1.0, 1.0)])
    for returns in (one, other):
        returns.refresh()
        assert_equal(returns, alone)
    assert alone.total_games == 3
    # The source is not guessed from counts: two games in a cell do not make it "games".
    client.hset(f"{run_name}returns", "0:1", struct.pack("<ddd", 2.0, 1.0, 0.5))
    restarted = SharedReturns(client, run_name)
    restarted.settings = MixtureSettings(source="exact")
    restarted.refresh()
    assert restarted.total_games == 4


def test_the_largest_return_is_shared_by_all_evaluators(client: redis.Redis, run_name: str) -> None:
    one, other = SharedReturns(client, run_name), SharedReturns(client, run_name)
    one.record(0, 1, [10.0, -3.0])
    other.record(1, 0, [4.0])
    other.refresh()
    restarted = SharedReturns(client, run_name)
    restarted.refresh()
    assert [returns.bound for returns in (one, other, restarted)] == [10.0, 10.0, 10.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_returns_that_are_not_finite_are_refused_and_nothing_is_added(
    value: float, client: redis.Redis, run_name: str
) -> None:
    for returns in (SharedReturns(client, run_name), Returns()):
        with pytest.raises(ConfigurationError, match=rf"returns of the players at slots 0 and 1: {value} .*finite"):
            returns.record(0, 1, [1.0, value])
        with pytest.raises(ConfigurationError, match="finite"):
            returns.add_cells([(0, 1, 1.0, 1.0, 1.0), (1, 0, 1.0, value, value)])
        assert returns.cells() == [] and returns.bound == 1.0
    assert not client.keys(f"{run_name}*")


def test_settings_are_written_again_after_redis_lost_them(client: redis.Redis, run_name: str) -> None:
    evaluator, reader = SharedReturns(client, run_name), SharedReturns(client, run_name)
    evaluator.settings = MixtureSettings(least=1000, exploiters=False)
    evaluator.record(0, 1, [1.0])
    client.delete(*client.keys(f"{run_name}*"))
    evaluator.refresh()
    reader.refresh()
    assert reader.settings == evaluator.settings


def test_returns_that_redis_lost_are_dropped_here_too(client: redis.Redis, run_name: str) -> None:
    returns = SharedReturns(client, run_name)
    for _ in range(3):
        returns.record(0, 1, [1.0])
    returns.refresh()
    client.delete(*client.keys(f"{run_name}*"))
    returns.refresh()
    assert returns.total_games == 0 and returns.cells() == []
    returns.record(3, 1, [1.0])
    assert returns.cells() == [(3, 1, 1.0, 1.0, 1.0)]


def test_the_least_exploitable_mixture_of_one_evaluator_is_shared_by_all(client: redis.Redis, run_name: str) -> None:
    one, other = SharedReturns(client, run_name), SharedReturns(client, run_name)
    one.record(0, 1, [1.0])
    assert other.refresh() == 1 and other.least_exploitable is None
    for share in (0.25, 1 / 3):
        one.found(LeastExploitable(np.array([1, 0]), np.full((2, 2), share), share / 7))
        assert other.refresh() == 0 and other.least_exploitable is not None
        assert other.least_exploitable.to_dict() == one.least_exploitable.to_dict()  # type: ignore[union-attr]
        one.refresh()
        assert other.version == one.version
    one.record(2, 1, [1.0])
    assert other.refresh() == 1 and other.games(SLOTS)[2, 1] == 1
    client.delete(*client.keys(f"{run_name}*"))  # a Redis that came back empty
    other.refresh()
    assert other.least_exploitable is None


@pytest.fixture
def own_redis(tmp_path: Path, servers: object) -> Iterator[OwnRedis]:
    made = OwnRedis(tmp_path / "redis")
    yield made
    made.kill()


def test_a_saved_and_restored_league_has_the_same_returns_bit_by_bit_and_goes_on(
    redis_url: str, run_name: str, own_redis: OwnRedis, tmp_path: Path
) -> None:
    store, rng, expected = store_on(redis_url, run_name), np.random.default_rng(0), Returns()
    for name in "abcdef":
        store.add_player(name, "self_play")
    best = LeastExploitable(np.array([2, 0]), np.array([[0.5, 0.5], [1 / 3, 2 / 3]]), 0.1)
    pool, returns = Pool(store.redis, f"{run_name}:"), SharedReturns(store.redis, store.prefix)
    returns.settings = MixtureSettings(least=1000, temperature=0.25, exploiters=False)
    snapshots = Snapshots(tmp_path / "saved", store, pool)
    for size in (3, 500):
        for _ in range(20):
            cell, values = rng.integers(6, size=2), rng.normal(0.1, 3.0, size)
            for each in (returns, expected):
                each.record(*cell, values)
        returns.found(best)
        snapshots.save()
    before = (tmp_path / "saved" / "returns.json").stat()
    snapshots.save()
    assert (tmp_path / "saved" / "returns.json").stat().st_ino == before.st_ino  # nothing new: not written again

    there = Store(own_redis.client, f"{run_name}:league:")
    restored = Snapshots(tmp_path / "saved", there, Pool(own_redis.client, f"{run_name}:"))
    restored.restore()
    evaluator = SharedReturns(there.redis, there.prefix)
    evaluator.refresh()
    for each in (evaluator, restored.returns):
        assert each.cells() == returns.cells()
        assert_equal(each, expected)
        assert (each.settings, each.bound) == (returns.settings, returns.bound)
        assert each.least_exploitable is not None and each.least_exploitable.to_dict() == best.to_dict()
    for each in (evaluator, expected):
        each.record(1, 2, [0.1, 0.2])
    restored.returns.refresh()
    assert_equal(restored.returns, expected)

    # In a folder of an older release, the source and the largest return are derived from the cells.
    (tmp_path / "saved" / "mixture.json").unlink()
    older = returns_in(tmp_path / "saved")
    assert older.cells() == returns.cells() and older.settings == MixtureSettings(source="games")
    assert 1.0 < older.bound <= returns.bound

    # Saved returns replace those that evaluators added to a Redis that came back empty.
    own_redis.client.delete(*(key for key in own_redis.client.keys("*") if b"returns" not in key))
    restored.restore()
    assert restored.returns.cells() == returns.cells()


def test_a_league_saved_without_returns_is_restored(
    redis_url: str, run_name: str, own_redis: OwnRedis, tmp_path: Path
) -> None:
    store = store_on(redis_url, run_name)
    Snapshots(tmp_path / "saved", store, Pool(store.redis, f"{run_name}:")).save()
    (tmp_path / "saved" / "returns.json").unlink()
    there = Store(own_redis.client, f"{run_name}:league:")
    Snapshots(tmp_path / "saved", there, Pool(own_redis.client, f"{run_name}:")).restore()
    assert not own_redis.client.keys("*returns*")
