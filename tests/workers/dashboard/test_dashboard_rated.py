"""Rated games in the dashboard: games against a player of a running league count for a person's rating."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.saved_league import save_league
from support.store_fixtures import assert_replayed

from league.redis.people import People
from league.redis.store import Store
from league.rules.settings import Settings
from warren.errors import ConfigurationError
from workers.dashboard.playing import Tables
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
    found = tmp_path / "run"
    save_league(found, LEAGUE, 0)
    (found / "servers").mkdir()
    Record("amqp://", redis_url, "private", "private", os.getpid(), run=run_name).write(found)
    return found


def played(tables: Tables, folder: Path, seat: int) -> list[dict[str, Any]]:
    """Let ann take the first legal move until a rated game is over; return all states that the page got."""
    shown = [tables.sit(folder, "main", seat, False, "ann")]
    while not shown[-1]["over"]:
        shown.append(tables.move(shown[-1]["game"], shown[-1]["legal"][0]["action"]))
    return shown


def test_each_game_counts_once_and_ends_with_the_rating(folder: Path, store: Store) -> None:
    tables = Tables()
    ends = [played(tables, folder, seat)[-1] for seat in (0, 1, 0)]
    games = sorted(People(store.redis, store.prefix).games().values(), key=lambda game: game.time)
    assert [(game.person, game.opponent, game.seat) for game in games] == [
        ("ann", "main", 0), ("ann", "main", 1), ("ann", "main", 0)
    ]  # fmt: skip
    assert [game.returned for game in games] == [end["returns"][end["seat"]] for end in ends]
    assert ends[-1]["rating"].startswith("ann: Elo ") and ends[-1]["rating"].endswith(" by 3 rated games")
    assert "ann" not in assert_replayed(store).players


def test_a_rated_game_shows_what_the_player_thinks_only_at_its_end(folder: Path) -> None:
    *before, end = played(Tables(), folder, 1)
    for shown in before:
        assert shown["rated"] == "ann" and shown["rating"] is None
        assert shown["view"] is None and all(move["view"] is None for move in shown["moves"])
    assert all(move["view"]["probabilities"] for move in end["moves"])


def test_games_without_a_name_or_left_midway_do_not_count(folder: Path, store: Store) -> None:
    tables = Tables()
    shown = tables.sit(folder, "main", 0, False)
    while not shown["over"]:
        shown = tables.move(shown["game"], shown["legal"][0]["action"])
    assert shown["rated"] is None and shown["rating"] is None
    tables.sit(folder, "main", 0, False, "ann")
    assert len(People(store.redis, store.prefix)) == 0


@pytest.mark.parametrize(
    ("given", "greedy", "why"),
    [
        ("a b", False, "rated: 'a b' cannot name a person; use 1 to 100 of"),
        ("", False, "rated: '' cannot name a person"),
        ("main", False, "rated: main is a player of the league; choose another name"),
        (3, False, "rated: 3 is not the name of a person"),
        ("ann", True, "rated: a player of the league draws its moves; leave rated or greedy out"),
    ],
)
def test_games_that_cannot_be_rated_are_refused_at_the_start(folder: Path, given: Any, greedy: bool, why: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Tables().sit(folder, "main", 0, greedy, given)
    assert str(error.value).startswith(why)


def test_an_ended_run_refuses_rated_games_with_the_remedy(folder: Path) -> None:
    (folder / "servers/servers.json").unlink()
    with pytest.raises(ConfigurationError, match=r"^rated: .* resume it by .* or leave out rated$"):
        Tables().sit(folder, "main", 0, False, "ann")
    assert Tables().sit(folder, "main", 0, False)["rated"] is None


def test_a_game_that_cannot_be_stored_ends_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: People, game: object) -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(People, "add", gone)
    end = played(Tables(), folder, 0)[-1]
    assert end["over"] and "this game does not count" in end["rating"]
