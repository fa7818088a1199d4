"""The league that a killed run left in Redis is saved before the next run begins with the folder."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import redis
from safetensors.numpy import save

from league.models.pool import Pool
from league.models.saved_stream import KEPT, SEGMENT
from league.models.snapshots import Snapshots
from league.models.unsaved import Unsaved
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.replay import fold, read_folder
from warren.errors import LeagueError


class Run:
    """A run's league in Redis."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.prefix = client, f"{name}:"
        self.store, self.pool = Store(client, f"{name}:league:"), Pool(client, self.prefix, cache_bytes=0)

    def begin(self, folder: Path) -> None:
        Unsaved(folder).begin(self.client, self.prefix)

    def play(self, matches: int) -> None:
        for _ in range(matches):
            self.store.report(self.store.request("main", "actor", 600.0).id, "w")

    def freeze(self, version: int) -> None:
        import numpy as np

        self.pool.put("main", version, version, save({"layer": np.full(4, float(version), np.float32)}))
        self.pool.freeze("main", version)
        self.store.snapshot("main", version)


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.fixture
def killed(client: redis.Redis, run_name: str, tmp_path: Path) -> Run:
    """Return a run that was killed when its folder lacked five matches, a frozen model and returns."""
    run = Run(client, f"{run_name}-killed")
    run.begin(tmp_path)
    run.store.create()
    for name in ("main", "rival"):
        run.store.add_player(name, "random")
    run.freeze(1)
    run.play(3)
    Snapshots(tmp_path, run.store, run.pool).save()
    run.freeze(2)
    run.play(5)
    SharedReturns(client, run.store.prefix).add(2, 3, 40, 1.0, 2.0)
    return run


def keys_of(run: Run) -> list[bytes]:
    return list(run.client.scan_iter(f"{run.prefix}*"))


def test_the_next_run_begins_with_all_that_a_killed_one_left(killed: Run, run_name: str, tmp_path: Path) -> None:
    live = killed.store.load()
    following = Run(killed.client, f"{run_name}-next")
    following.begin(tmp_path)
    assert fold(read_folder(tmp_path)).differences(live) == []
    assert keys_of(killed) == [] and Unsaved(tmp_path).prefixes == [following.prefix]
    assert Snapshots(tmp_path, following.store, following.pool).restore().differences(live) == []
    assert {str(info.ref) for info in following.pool.models()} == {"main@1", "main@2"}
    returns = SharedReturns(following.client, following.store.prefix)
    returns.refresh()
    assert returns.cells() == [(2, 3, 40.0, 1.0, 2.0)]


@pytest.mark.parametrize("step", ["save", "delete"])
def test_a_run_killed_while_saving_an_earlier_one_leaves_it_to_the_next(
    step: str, killed: Run, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = killed.store.load()

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(*((Snapshots, "save", dies) if step == "save" else (killed.client, "unlink", dies)))
        Run(killed.client, f"{run_name}-second").begin(tmp_path)
    third = Run(killed.client, f"{run_name}-third")
    third.begin(tmp_path)
    assert fold(read_folder(tmp_path)).differences(live) == []
    assert Unsaved(tmp_path).prefixes == [third.prefix]


def test_a_redis_that_lost_its_last_events_takes_nothing_from_the_folder(
    killed: Run, run_name: str, tmp_path: Path
) -> None:
    Snapshots(tmp_path, killed.store, killed.pool).save()
    saved = fold(read_folder(tmp_path))
    killed.client.xtrim(f"{killed.store.prefix}events", maxlen=0)
    Run(killed.client, f"{run_name}-next").begin(tmp_path)
    assert fold(read_folder(tmp_path)).differences(saved) == []
    assert not (tmp_path / "lost").exists()


def test_a_league_other_than_the_folders_is_left_in_redis(killed: Run, run_name: str, tmp_path: Path) -> None:
    other = Run(killed.client, f"{run_name}-other")
    other.store.create()
    other.store.add_player("else", "random")
    (tmp_path / "b").mkdir()
    folder = tmp_path / "b"
    Unsaved(folder).begin(killed.client, other.prefix)
    Snapshots(folder, killed.store, killed.pool).save()
    other.store.add_player("later", "random")
    saved = fold(read_folder(folder))
    Run(killed.client, f"{run_name}-next").begin(folder)
    assert fold(read_folder(folder)).differences(saved) == []
    assert other.store.exists()


def test_another_league_is_recognized_by_its_events_not_by_their_ids_alone(
    killed: Run, run_name: str, tmp_path: Path
) -> None:
    stream = Snapshots(tmp_path, killed.store, killed.pool).stream
    stream.follow(killed.store, killed.store.last_event())
    other = Run(killed.client, f"{run_name}-other")
    other.store.create()
    events = f"{other.store.prefix}events"
    killed.client.delete(events)
    killed.client.xadd(events, {"event": "joined", "player": "else"}, id=stream.read().last_event)
    stream.check(killed.store)
    with pytest.raises(LeagueError):
        stream.check(other.store)


def test_saving_a_killed_run_drops_no_older_history(killed: Run, run_name: str, tmp_path: Path) -> None:
    (tmp_path / "history").mkdir()
    older = [tmp_path / "history" / f"{number}-0.{KEPT}.jsonl.gz" for number in range(1, 4)]
    for path in older:  # as a run with `league.history: null` keeps them
        path.write_bytes(gzip.compress(b""))
    with killed.client.pipeline(transaction=False) as pipeline:
        for _ in range(SEGMENT):
            pipeline.xadd(f"{killed.store.prefix}events", {"event": "refused", "reason": "unknown"})
        pipeline.execute()
    Run(killed.client, f"{run_name}-next").begin(tmp_path)
    assert sorted((tmp_path / "history").iterdir()) == older


def test_clearing_the_note_leaves_no_prefixes(killed: Run, tmp_path: Path) -> None:
    Unsaved(tmp_path).clear()
    assert Unsaved(tmp_path).prefixes == []
