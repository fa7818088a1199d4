"""Resuming a league restores it whole or not at all, and files on disk are never replaced by less."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save
from support.own_redis import OwnRedis
from support.store_fixtures import assert_replayed, folded, store_on

from league.matchmaking.view import ModelRef
from league.models import snapshots as snapshots_module
from league.models.keeper import Keeper
from league.models.pool import LEAGUE, Pool
from league.models.saved_stream import SavedStream
from league.models.snapshots import Snapshots
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.history import History
from league.state.replay import before, fold, read_file, read_folder
from warren.errors import LeagueAbsent, LeagueError
from workers.config.league import LeagueConfig, PlayerConfig
from workers.leagues.service import begin

SEGMENT = 60


@pytest.fixture
def store(redis_url: str, run_name: str) -> Store:
    made = store_on(redis_url, run_name)
    for name in ("main", "rival"):
        made.add_player(name, "random")
    return made


@pytest.fixture
def pool(store: Store, run_name: str) -> Pool:
    return Pool(store.redis, f"{run_name}:", cache_bytes=0)


def play(store: Store, matches: int) -> None:
    for number in range(matches):
        store.report(store.request("main", "actor", 600.0).id, "wdl"[number % 3])


def weights(number: int) -> bytes:
    import numpy as np

    return save({"layer": np.full(4, float(number), np.float32)})


def there(own_redis: OwnRedis, run_name: str) -> tuple[Store, Pool]:
    return Store(own_redis.client, f"{run_name}:league:"), Pool(own_redis.client, f"{run_name}:")


CONFIG = LeagueConfig(env="rps", players={"main": PlayerConfig("random"), "late": PlayerConfig("random")})


@pytest.mark.parametrize("step", ["_restore_models", "restore", "open_up"])
def test_a_killed_restore_leaves_no_league_and_the_next_one_restores_all(
    step: str, store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path, monkeypatch: Any
) -> None:
    play(store, 50)
    for version in (1, 2, 3):
        pool.put("main", version, version, weights(version))
        pool.freeze("main", version)
    SharedReturns(store.redis, store.prefix).add(0, 1, 3, 1.0, 2.0)
    Snapshots(tmp_path / "saved", store, pool).save()
    live = store.load()
    theirs, their_pool = there(own_redis, run_name)

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if step == "_restore_models":
            puts: list[int] = []
            real = Pool.restore

            def second(self: Pool, *given: Any) -> None:
                if puts:
                    raise Killed
                puts.append(1)
                real(self, *given)

            patched.setattr(Pool, "restore", second)
        elif step == "restore":
            patched.setattr(snapshots_module, "restore", dies)
        else:
            patched.setattr(Store, "open_up", dies)
        with pytest.raises(Killed):
            begin(theirs, their_pool, CONFIG, tmp_path / "saved")
    assert not theirs.is_ready()
    for call in (lambda: theirs.request("main", "actor", 60.0), lambda: theirs.report("m", "w"), theirs.expire):
        with pytest.raises(LeagueAbsent):
            call()
    begin(theirs, their_pool, CONFIG, tmp_path / "saved")
    restored = assert_replayed(theirs)
    assert list(restored.players) == ["main", "rival", "late"]
    assert restored.counters == live.counters and (restored.payoff.cells[:2, :2] == live.payoff.cells).all()
    assert their_pool.models() == pool.models()
    returns = SharedReturns(theirs.redis, theirs.prefix)
    returns.refresh()
    assert returns.cells() == [(0, 1, 3.0, 1.0, 2.0)]


def test_a_league_that_lacks_what_is_on_disk_is_not_saved_over_it(
    store: Store, pool: Pool, run_name: str, own_redis: OwnRedis, tmp_path: Path
) -> None:
    play(store, 20)
    SharedReturns(store.redis, store.prefix).add(0, 1, 1000, 1.0, 2.0)
    pool.put("main", 1, 1, weights(1))
    folder = tmp_path / "saved"
    Snapshots(folder, store, pool).save()
    saved = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    theirs, their_pool = there(own_redis, run_name)
    theirs.create()
    theirs.add_player("main", "random")
    SharedReturns(theirs.redis, theirs.prefix).add(0, 0, 3, 1.0, 2.0)
    with pytest.raises(LeagueError, match=r"not the one saved in .* nothing is written over it"):
        Snapshots(folder, theirs, their_pool).save()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == saved


def test_saved_events_that_a_crash_of_redis_undid_are_moved_aside(store: Store, pool: Pool, tmp_path: Path) -> None:
    play(store, 5)
    snapshots = Snapshots(tmp_path, store, pool)
    returns = SharedReturns(store.redis, store.prefix)
    returns.add(0, 1, 100, 1.0, 2.0)
    match = store.request("main", "actor", 600.0).id
    kept = {key: store.redis.dump(key) for key in store.redis.keys(f"{store.prefix}*")}
    store.report(match, "w")  # saved, then lost by a server that had not synced it
    returns.add(0, 1, 10, 1.0, 2.0)
    snapshots.save()
    store.redis.delete(*store.redis.keys(f"{store.prefix}*"))
    for key, value in kept.items():
        store.redis.restore(key, 0, value)
    store.report(match, "l")
    play(store, 2)
    for each in (snapshots, Snapshots(tmp_path, store, pool)):  # the keeper that saved it, and a later one
        each.save()
        assert store.load().differences(fold(read_file(tmp_path / "league.jsonl"))) == []
    (lost,) = (tmp_path / "lost").iterdir()
    assert [json.loads(line)["fields"]["match"] for line in lost.read_text().splitlines()] == [match]
    (more,) = tmp_path.glob("returns.*.json")
    assert (
        json.loads(more.read_text())[0][2] == 110 and json.loads((tmp_path / "returns.json").read_text())[0][2] == 100
    )


def test_a_match_that_ended_twice_in_a_file_is_named(store: Store, pool: Pool, tmp_path: Path) -> None:
    play(store, 2)
    Snapshots(tmp_path, store, pool).save()
    path = tmp_path / "league.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    with pytest.raises(LeagueError, match=r"event \d+-\d+: match '\w+' is not open \(it ended before\)"):
        fold(read_file(path))
    with pytest.raises(LeagueError, match="is not open"):
        Snapshots(tmp_path, store, pool).save()


def test_a_checkpoint_stands_for_all_earlier_events(store: Store, pool: Pool) -> None:
    play(store, 30)
    store.snapshot("main", 1)
    store.request("main", "actor", 600.0)
    whole, resumed = History(), History()
    whole.take(store.events())
    resumed.take([(whole.last_event, whole.checkpoint())])
    assert whole.state.differences(resumed.state) == []
    play(store, 10)
    whole.follow(store)
    resumed.follow(store)
    for name in ("began", "now", "joined", "ended", "snapshots", "restarts", "last_event"):
        assert getattr(resumed, name) == getattr(whole, name)
    assert {name: series.to_plain() for name, series in resumed.ratings.items()} == {
        name: series.to_plain() for name, series in whole.ratings.items()
    }


@pytest.fixture
def rotated(store: Store, pool: Pool, tmp_path: Path) -> tuple[Keeper, Path]:
    """Return a keeper that has closed files of 60 events or more in a league of a few hundred, and its folder."""
    keeper = Keeper(store, pool, tmp_path / "kept", every=3600.0, segment=SEGMENT)
    for _ in range(8):
        play(store, 40)
        keeper.step()
    return keeper, tmp_path / "kept"


def test_a_long_stream_is_cut_in_redis_and_on_disk_and_replays_from_both(
    store: Store, rotated: tuple[Keeper, Path]
) -> None:
    keeper, folder = rotated
    live = assert_replayed(store)
    assert store.stream_length() < SEGMENT + 200  # XTRIM removes only whole nodes of the stream
    assert len(list(read_file(folder / "league.jsonl"))) <= 81
    assert live.differences(fold(read_file(folder / "league.jsonl"))) == []
    events = list(read_folder(folder))
    assert len(events) == 8 * 80 + 3 and events[0][1]["event"] == "created"
    assert live.differences(fold(events)) == []
    then = fold(before(read_folder(folder), events[100][0]))
    assert then.differences(fold(events[:101])) == [] and then != live
    following = History()
    following.take(events)
    assert following.last_event == keeper.snapshots.stream.read().last_event


def test_history_is_kept_as_long_as_asked_and_earlier_moments_are_refused(
    store: Store, pool: Pool, tmp_path: Path
) -> None:
    keeper = Keeper(store, pool, tmp_path / "kept", every=3600.0, history=2 * SEGMENT + 50, segment=SEGMENT)
    first = list(store.events())[1][0]
    for _ in range(8):
        play(store, 40)
        keeper.step()
    events = list(read_folder(tmp_path / "kept"))
    assert len(events) < 400 and events[0][1]["event"] == "checkpoint"
    assert store.load().differences(fold(events)) == []
    with pytest.raises(LeagueError, match="the history that is kept begins with"):
        fold(before(read_folder(tmp_path / "kept"), first))
    with pytest.raises(LeagueError, match="the history that is kept begins with"):
        fold(before(store.events(), first))


def test_a_trimmed_stream_is_restored_and_continues(
    store: Store, rotated: tuple[Keeper, Path], run_name: str, own_redis: OwnRedis
) -> None:
    keeper, folder = rotated
    play(store, 3)
    keeper.snapshots.save()
    live = store.load()
    theirs, their_pool = there(own_redis, run_name)
    later = Keeper(theirs, their_pool, folder, every=0.0, segment=SEGMENT)
    later.step()  # Redis came back empty
    assert live.differences(assert_replayed(theirs)) == []
    play(theirs, 100)
    later.step()
    play(theirs, 1)
    later.step()
    assert assert_replayed(theirs).differences(fold(read_folder(folder))) == []


def test_an_interrupted_rotation_is_completed_later(
    store: Store, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(store, 40)
    folder = tmp_path / "kept"

    def crashes(*_: object) -> None:
        raise OSError("no space left on device")

    for part in ("_drop_oldest", "_archive"):
        with monkeypatch.context() as patched:
            patched.setattr(SavedStream, part, crashes)
            with pytest.raises(OSError, match="no space"):
                Keeper(store, pool, folder, segment=SEGMENT).step()
        play(store, 40)
    Keeper(store, pool, folder, segment=SEGMENT).step()
    assert store.load().differences(fold(read_folder(folder))) == []


def test_a_second_folder_can_be_saved_though_the_stream_is_trimmed_between(
    store: Store, pool: Pool, rotated: tuple[Keeper, Path], tmp_path: Path
) -> None:
    keeper, _ = rotated
    for _ in range(2):
        by_hand = Snapshots(tmp_path / "by-hand", store, pool)
        by_hand.save()
        assert store.load().differences(fold(read_file(tmp_path / "by-hand" / "league.jsonl"))) == []
        for _ in range(3):
            play(store, 40)
            keeper.step()


def test_a_save_by_hand_leaves_the_live_stream_to_the_runs_own_keeper(store: Store, pool: Pool, tmp_path: Path) -> None:
    keeper = Keeper(store, pool, tmp_path / "kept", every=3600.0, segment=SEGMENT)
    keeper.step()
    play(store, 400)
    Snapshots(tmp_path / "by-hand", store, pool).save()
    assert store.checkpoint() is None
    play(store, 10)
    keeper.step()
    live = store.load()
    for folder in ("kept", "by-hand"):
        Snapshots(tmp_path / folder, store, pool).save()
        assert live.differences(fold(read_folder(tmp_path / folder))) == []
    assert len(list(read_folder(tmp_path / "kept"))) == 823


def test_a_history_that_lacks_events_continues_from_the_next_checkpoint(
    store: Store, pool: Pool, rotated: tuple[Keeper, Path], tmp_path: Path
) -> None:
    keeper, _ = rotated
    folder = tmp_path / "by-hand"
    Snapshots(folder, store, pool).save()
    for _ in range(4):  # the stream is trimmed past the folder's last event
        play(store, 100)
        keeper.step()
    Snapshots(folder, store, pool).save()
    assert store.load().differences(fold(read_folder(folder))) == []


def test_a_save_killed_after_a_trim_leaves_a_league_in_the_folder(
    store: Store, pool: Pool, rotated: tuple[Keeper, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, _ = rotated
    by_hand = Snapshots(tmp_path / "by-hand", store, pool)
    by_hand.save()
    for _ in range(4):
        play(store, 100)
        keeper.step()

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Snapshots, "_save_models", dies)
        by_hand.save()
    assert by_hand.saved()
    by_hand.save()
    assert store.load().differences(fold(read_folder(tmp_path / "by-hand"))) == []


def test_models_that_no_player_needs_are_removed(store: Store, pool: Pool, tmp_path: Path) -> None:
    for version in range(1, 6):
        pool.put("main", version, 0, weights(version))
        pool.freeze("main", version, *([LEAGUE] if version != 2 else []))
    store.snapshot("main", 1)
    store.change("rival", initial=ModelRef("main", 3))
    keeper = Keeper(store, pool, tmp_path, every=3600.0)
    keeper.step()
    state = keeper.snapshots.stream.read().state
    assert keeper.prune(state, pool.models()) == []  # just frozen: the end of a period may name them soon
    for info in pool.models():
        pool.redis.hset(f"{pool.prefix}model:{info.ref}", "frozen_at", time.time() - 3600.0)
    assert [ref.version for ref in keeper.prune(state, pool.models())] == [4, 5]
    assert [info.version for info in pool.models()] == [1, 2, 3]  # 2 was frozen by hand


def test_ended_matches_are_kept_in_one_hash(store: Store) -> None:
    play(store, 20)
    assert store.redis.keys(f"{store.prefix}ended:*") == [f"{store.prefix}ended:newer".encode()]
    assert store.redis.hlen(f"{store.prefix}ended:newer") == 20


def test_a_stream_folds_alike_from_any_checkpoint(store: Store, rotated: tuple[Keeper, Path]) -> None:
    _, folder = rotated
    pieces: list[Callable[[], Any]] = [lambda: store.events(), lambda: read_file(folder / "league.jsonl")]
    assert all(folded(store).differences(fold(piece())) == [] for piece in pieces)
