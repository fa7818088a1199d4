"""Tests of an actor's share of a round: its trajectories and games follow the present number of actors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from league.state.in_memory import MemoryLeague
from warren.errors import LeagueError
from workers.config.league import LeagueConfig, PlayerConfig
from workers.config.schema import Config, EnvConfig
from workers.leagues import actor as module
from workers.leagues.actor import LeagueActorRole
from workers.leagues.known_players import Learning
from workers.leagues.wire import Invitation
from workers.runtime.league_policies import LeaguePolicies


class Client:
    """The league's services, in this process."""

    def __init__(self) -> None:
        self.league = MemoryLeague(seed=1)
        self.league.add_player("main", "random", {"self_share": 1.0})
        self.away = False
        self.given_back = 0

    def request(self, player: str, lease: float, opponents: int = 1) -> Any:
        return Invitation(self.league.request(player, opponents), None)

    def report(self, match: Any, outcomes: str) -> tuple[str, str]:
        self._answer()
        self.given_back += 1
        self.league.report(match, outcomes)
        return "counted", ""

    def abort(self, match: Any) -> None:
        self._answer()
        self.given_back += 1
        self.league.abort(match)

    def extend(self, matches: list[str], lease: float) -> list[bool]:
        return [True] * len(matches)

    def _answer(self) -> None:
        if self.away:
            raise LeagueError("the league did not answer")


class Players:
    """A single player that plays itself."""

    def __init__(self, home: Learning) -> None:
        self._home = home

    def __getitem__(self, name: str) -> Learning:
        return self._home

    def all(self) -> list[Learning]:
        return [self._home]

    def fits(self, match: Any) -> bool:
        return True

    def opponents(self, match: Any, models: Any) -> tuple[None, ...]:
        return (None,)


@pytest.fixture
def league() -> LeagueConfig:
    return LeagueConfig(
        players={"main": PlayerConfig(kind="random")},
        env="openspiel:kuhn_poker", network={"hidden_sizes": []}, games=64, tables=2, lanes=48, unroll_length=4,
        match_games=20,
    )  # fmt: skip


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(module, "LeagueClient", lambda *_: client)
    return client


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, league: LeagueConfig, client: Client, one_thread: None) -> LeagueActorRole:
    weights = SimpleNamespace(wait_for=lambda *_: True, version=0, stamped=lambda newer_than: None)
    policy = LeaguePolicies(league).new("main", 1)
    home = Learning("main", weights, SimpleNamespace(stop=lambda: None), policy, version=0)  # type: ignore[arg-type]
    players = Players(home)
    monkeypatch.setattr(module, "KnownPlayers", lambda *_: players)
    session: Any = SimpleNamespace(
        app=SimpleNamespace(task=lambda *_, **__: None),
        redis=None,
        topology=SimpleNamespace(key_prefix="r:"),
        ledger=SimpleNamespace(make=lambda segment: None),
    )
    return LeagueActorRole(Config(trial="t", run="r", env=EnvConfig(id="e"), actors=2), session, league)


def trajectories(actor: LeagueActorRole, actors: int) -> int:
    answer = actor.rollout("round", 0, "main", actors)
    assert "failed" not in answer, answer
    return int(answer["trajectory"]["reward"].shape[1])


def test_the_size_of_a_round_does_not_depend_on_the_number_of_actors(
    actor: LeagueActorRole, league: LeagueConfig
) -> None:
    home = actor.players["main"]
    for actors, games in ((2, 32), (4, 16), (1, 64), (3, 20)):
        assert actors * trajectories(actor, actors) == league.lanes
        assert home.sampler is not None and home.sampler.games.num_envs == games


def test_matches_are_given_back_when_an_actors_share_of_the_games_changes(
    actor: LeagueActorRole, client: Client
) -> None:
    trajectories(actor, 2)
    assert client.league.state.matches
    trajectories(actor, 4)
    counters = client.league.state.counters
    assert client.given_back > 0
    assert counters["issued"] == counters["counted"] + counters["aborted"] + len(client.league.state.matches)
    assert len(client.league.state.matches) <= 4


def test_an_absent_league_costs_the_matches_and_not_the_round(actor: LeagueActorRole, client: Client) -> None:
    trajectories(actor, 1)
    client.away = True
    home = actor.players["main"]
    before = home.matches
    actor._matches(home, 8)
    assert home.matches is not before


@pytest.mark.parametrize("actors", [1, 2, 3, 16, 1000])
def test_each_table_has_equally_many_games_in_either_seat(league: LeagueConfig, actors: int) -> None:
    slots = league.slots(actors)
    assert slots % (2 * league.tables) == 0 and slots > 0
    assert slots * actors <= max(league.games, 2 * league.tables * actors)
