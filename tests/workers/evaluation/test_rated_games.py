"""A person's rated games count once each, are shown and saved, and are no part of the league."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from support.saved_league import save_league
from support.store_fixtures import assert_replayed

from league.cli.overview import overview
from league.cli.show import page
from league.cli.tables import output
from league.models.pool import Pool
from league.models.snapshots import Snapshots, people_in
from league.redis import people as people_module
from league.redis.people import People
from league.redis.store import Store
from league.rules.people import PersonGame, people
from league.rules.settings import Settings
from warren.errors import ConfigurationError
from workers.evaluation import play, tournament
from workers.servers.record import Record

pytestmark = pytest.mark.usefixtures("one_thread")

LEAGUE = {
    "env": "openspiel:kuhn_poker", "players": {"main": {"kind": "main_agent"}},
    "network": {"name": "mlp", "hidden_sizes": []}, "series": 4,
}  # fmt: skip


@pytest.fixture
def store(redis_url: str, run_name: str) -> Iterator[Store]:
    client = redis.Redis.from_url(redis_url)
    made = Store(client, f"warren.{run_name}:league:", seed=1)
    made.create(Settings())
    made.add_player("main", "main_agent")
    yield made
    for key in client.scan_iter(f"warren.{run_name}:*"):
        client.delete(key)


@pytest.fixture
def folder(tmp_path: Path, redis_url: str, run_name: str, store: Store) -> Path:
    """Return the folder of a running league whose main has a checkpoint."""
    found = tmp_path / "run"
    save_league(found, LEAGUE, 0)
    (found / "servers").mkdir()
    Record("amqp://", redis_url, "private", "private", os.getpid(), run=run_name).write(found)
    return found


def options(folder: Path, **given: object) -> argparse.Namespace:
    default: dict[str, Any] = {**play.OF_TWO, **play.OF_ONE, "games": 6, "rated": "ann"}
    return argparse.Namespace(folder=folder, **{**default, **given})


def played(folder: Path, **given: object) -> list[str]:
    """Let ann always bet; return the printed lines."""
    said: list[str] = []
    assert play.run(options(folder, **given), lambda _: "1", said.append) == 0
    return said


def test_rated_games_count_for_a_person_who_is_no_player_of_the_league(folder: Path, store: Store) -> None:
    said = played(folder, seat=None)
    games = list(People(store.redis, store.prefix).games().values())
    assert sorted(game.seat for game in games) == [0, 0, 0, 1, 1, 1]
    ends = [line for line in said if "is over" in line]
    found = [
        float(line.split(f"player {number % 2} ")[1].split(",")[0].split(";")[0]) for number, line in enumerate(ends)
    ]
    assert [game.returned for game in sorted(games, key=lambda game: game.time)] == found
    assert {(game.opponent, game.elo, game.series) for game in games} == {("main", 1200.0, 4)}
    (row,) = overview(store, Pool(store.redis, store.prefix), 10)["people"]
    assert (row["person"], row["games"], row["outcomes"], row["opponents"]) == ("ann", 6, 1, ["main"])
    assert row["elo_lower"] < row["elo"] < row["elo_upper"]
    assert (
        said[-1]
        == f"ann: Elo {row['elo']:.0f} ({row['elo_lower']:.0f} to {row['elo_upper']:.0f}, 95%) by 6 rated games"
    )
    state = assert_replayed(store)
    assert "ann" not in state.players and not state.counters.get("issued")


def test_people_are_shown_below_the_players(folder: Path, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    played(folder)
    output().print(page(overview(store, Pool(store.redis, store.prefix), 10), "r", 200))
    shown = capsys.readouterr().out
    assert shown.index("main_agent") < shown.index("person") < shown.index("ann")


def test_an_abandoned_game_does_not_count_and_earlier_ones_do(folder: Path, store: Store) -> None:
    answers = iter(["1"])

    def ask(_: str) -> str:
        if len(People(store.redis, store.prefix)) == 2:
            raise EOFError
        return next(answers, "1")

    assert play.run(options(folder), ask, [].append) == 0
    assert len(People(store.redis, store.prefix)) == 2


def test_saved_rated_games_are_restored_once(folder: Path, store: Store, run_name: str, tmp_path: Path) -> None:
    played(folder)
    pool = Pool(store.redis, f"warren.{run_name}:")
    saved = Snapshots(tmp_path / "saved", store, pool)
    saved.save()
    games = People(store.redis, store.prefix).games()
    assert people_in(tmp_path / "saved") == games and len(games) == 6
    there = Store(store.redis, f"warren.{run_name}:other:")
    Snapshots(tmp_path / "saved", there, Pool(store.redis, f"warren.{run_name}:other:")).restore()
    assert People(there.redis, there.prefix).games() == games
    People(there.redis, there.prefix).put(games)
    assert len(People(there.redis, there.prefix)) == 6
    store.redis.delete(f"{store.prefix}people")
    played(folder)
    saved.save()
    assert len(people_in(tmp_path / "saved")) == 12, "the folder keeps games that Redis lost"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"rated": "a b"}, "--rated: 'a b' cannot name a person; use 1 to 100 of"),
        ({"rated": "main"}, "--rated: main is a player of the league; choose another name"),
        ({"against": "main@0"}, "--rated: with --against two players would meet; leave one of the two out"),
        ({"greedy": True}, "--rated: with --greedy a player of the league draws its actions; leave"),
        ({"seed": 3}, "--rated: with --seed nobody may know the cards; leave one of the two out"),
        ({"player": "main@0"}, "--rated: main@0 is not in the league now, so that games against it say nothing"),
        ({"folder": Path("openspiel:kuhn_poker")}, "--rated: openspiel:kuhn_poker is a game; name the run folder"),
    ],
)
def test_games_that_cannot_be_rated_are_refused_before_they_are_played(
    folder: Path, given: dict[str, Any], message: str
) -> None:
    said: list[str] = []
    with pytest.raises(ConfigurationError) as error:
        play.run(options(given.pop("folder", folder), **given), lambda _: "1", said.append)
    assert str(error.value).startswith(message) and not any("is over" in line for line in said)


@pytest.mark.parametrize(
    "gone, why",
    [
        ("record", r"has no running servers \(.* does not exist\)"),
        ("server", "the Redis of .* does not answer"),
        ("league", "Redis does not hold the league of"),
    ],
)
def test_a_run_without_its_store_is_refused_with_the_remedy(folder: Path, store: Store, gone: str, why: str) -> None:
    record = folder / "servers" / "servers.json"
    if gone == "record":
        record.unlink()
    elif gone == "server":
        record.write_text(json.dumps({**json.loads(record.read_text()), "redis_url": "redis://127.0.0.1:1/0"}))
    else:
        store.redis.delete(f"{store.prefix}settings")
    with pytest.raises(ConfigurationError) as error:
        play.run(options(folder), lambda _: "1", [].append)
    (problem,) = error.value.problems
    assert problem.startswith("--rated: ") and re.search(why, problem)
    assert problem.endswith(f"resume it by python -m workers.train resume={folder}, or leave out --rated")


def test_a_league_takes_a_bounded_number_of_rated_games(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people_module, "MOST", 2)
    with pytest.raises(ConfigurationError, match="the league has 2 rated games, and takes no more"):
        played(folder)
    assert len(People(store.redis, store.prefix)) == 2


def test_outcomes_of_people_are_those_of_series_against_one_opponent() -> None:
    game = PersonGame("ann", "main", 1400.0, 0, 1.0, 3, 0.0)
    games = [
        replace(game, returned=returned, time=time) for time, returned in enumerate([1.0, -2.0, 2.0, -1.0, -1.0, 1.0])
    ]
    games += [replace(game, opponent="weak", elo=900.0, returned=-1.0), replace(game, person="bob", returned=-1.0)]
    ann, bob = people(games)
    assert (ann["person"], ann["games"], ann["outcomes"]) == ("ann", 7, 3)  # main: 1 won, 1 lost; weak: 1 lost
    assert (bob["person"], bob["games"], bob["outcomes"]) == ("bob", 1, 1)
    assert ann["mean_return"] == pytest.approx(-1 / 7, abs=1e-4)


def test_a_tournament_shows_people_with_their_games_against_its_players(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "one"
    save_league(folder, LEAGUE, 0)
    game = PersonGame("ann", "main@0", 1200.0, 0, 1.0, 4, 0.0)
    games = {str(number): replace(game, returned=float(number % 2)) for number in range(10)}
    games["other"] = replace(game, opponent="main", returned=-2.0)
    held = {name: vars(one) for name, one in games.items()}
    (folder / "league" / "people.json").write_text(json.dumps(held))
    assert tournament.main([f"{folder}:main@0", "uniform", "--games", "64", "--out", str(tmp_path / "out")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ann (a person)")]
    assert "+0.5000" in line and "+0.500" in line
    found = json.loads((tmp_path / "out" / "tournament.json").read_text())
    assert found["players"] == ["one:main@0", "uniform"] and found["people"]["ann"]["one:main@0"]["count"] == 10
    assert np.isfinite(found["people"]["ann"]["one:main@0"]["upper"])
