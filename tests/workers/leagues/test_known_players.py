"""Tests of the weights in a match: they are of the match's generations and stay the same until its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from support.match_weights import FOLDER, WatchingHost, checksum, lines_of

from agents import build_policy
from agents.checkpoints import weights_to_bytes
from agents.policies import Policy
from league.state.league_state import Match
from warren.errors import PlayerUnavailable
from workers.config.league import LeagueConfig, PlayerConfig
from workers.leagues import known_players as module
from workers.leagues.known_players import KnownPlayers
from workers.leagues.player_host import OTHERS, PlayerHost
from workers.leagues.wire import Invitation
from workers.rollout.games.match_result import MatchResult
from workers.runtime.league_policies import LeaguePolicies, Network


def build(seed: int) -> Policy:
    spaces = gymnasium.spaces.Box(-1, 1, (3,), np.float32), gymnasium.spaces.Discrete(2)
    return build_policy({"hidden_sizes": []}, *spaces, seed)


class Made(LeaguePolicies):
    """Makes policies of the one network that these players have."""

    def __init__(self) -> None:
        super().__init__(LeagueConfig(env="matrix:rps", players={"main": PlayerConfig("random")}))

    def new(self, player: str, seed: int = 0, network: Network | None = None) -> Policy:
        return build(seed)


class Pool:
    """A stand-in for the pool: the newest weights of each player."""

    def __init__(self) -> None:
        self.models: dict[str, Any] = {}
        self.when_asked = lambda: None

    def put(self, player: str, version: int, generation: int = 0) -> None:
        stamp = {"player": player, "version": version, "generation": generation}
        self.models[player] = SimpleNamespace(version=version, data=weights_to_bytes(build(version), stamp))

    def newest(self, player: str, newer_than: int = -1) -> Any:
        self.when_asked()
        model = self.models.get(player)
        return model if model is not None and model.version > newer_than else None


def match(away: str = "rival", home_generation: int = 0, away_generation: int = 0, frozen: bool = False) -> Match:
    return Match("m", "main", away, "pfsp", "actor", home_generation, away_generation, False, frozen, 0)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(module, "Subscription", lambda *_, **__: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(module, "GENERATION_PATIENCE", 0.5)
    monkeypatch.setattr(module, "POLL_EVERY", 0.01)
    pool = Pool()
    pool.put("main", 5)
    pool.put("rival", 7)
    yield pool


def players_of(pool: Pool) -> KnownPlayers:
    session: Any = SimpleNamespace(pool=pool, app=None, topology=None)
    return KnownPlayers(session, "actor-0", Made(), threading.Event(), patience=20.0)


def test_a_match_between_known_generations_is_played(pool: Pool) -> None:
    assert players_of(pool).fits(match())


def test_weights_from_before_a_reset_do_not_play_for_the_generation_after_it(pool: Pool) -> None:
    players = players_of(pool)
    assert players.fits(match())
    assert not players.fits(match(away_generation=1)), "the reset is decided, but its weights are not published"
    assert not players.fits(match(home_generation=1))
    pool.put("rival", 8, generation=1)
    assert players.fits(match(away_generation=1)), "fetched from the pool, since no event brought them"
    assert not players.fits(match(away_generation=0)), "issued before the reset: the league will drop its result"
    assert players["rival"].version == 8


def test_a_match_waits_for_weights_of_its_generation(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GENERATION_PATIENCE", 60.0)
    players = players_of(pool)
    assert players.fits(match())
    polls: list[int] = []

    def poll() -> None:
        polls.append(1)
        if len(polls) == 3:
            pool.put("rival", 8, generation=1)

    pool.when_asked = poll
    assert players.fits(match(away_generation=1))


def test_a_reset_player_begins_its_games_anew(pool: Pool) -> None:
    players = players_of(pool)
    assert players.fits(match())
    restarts: list[int] = []
    loaded: list[int] = []
    matches: Any = SimpleNamespace(
        restart=lambda: restarts.append(1), load=lambda weights, version, behaviour: loaded.append(version)
    )
    players["rival"].matches = matches
    pool.put("rival", 8, generation=1)
    assert players.fits(match(away_generation=1))
    assert (loaded, restarts) == ([8], [1])


def test_an_opponent_that_learns_plays_a_match_with_one_set_of_weights(pool: Pool) -> None:
    players = players_of(pool)
    first = players.opponents(match(), (None,))[0]
    assert first is not None
    assert checksum(first) == checksum(build(7))
    assert players.opponents(match(), (None,))[0] is first, "matches against the same weights share a forward pass"
    pool.put("rival", 8)
    players["rival"].weights.fetch()
    players["rival"].refresh()
    assert checksum(first) == checksum(build(7)), "the match under way"
    second = players.opponents(match(), (None,))[0]
    assert second is not None
    assert checksum(second) == checksum(build(8)), "the next match"


def test_an_opponent_without_weights_is_named(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    players = players_of(pool)
    players._patience = 0.1
    with pytest.raises(PlayerUnavailable, match="'nobody' is to be played and has published no weights"):
        players.opponents(match("nobody"), (None,))[0]


def host_of(players: KnownPlayers, *opponents: str) -> tuple[PlayerHost, list[str]]:
    """Return a host whose league issues a match against each of `opponents` in turn, and the matches given back."""
    left, aborted = iter(opponents), list[str]()
    client: Any = SimpleNamespace(
        request=lambda *_: Invitation(match(next(left)), None), abort=lambda match: aborted.append(match.away)
    )
    league: Any = SimpleNamespace(lease=60.0)
    recorder: Any = None
    return PlayerHost("main", league, client, players, recorder, lambda: None), aborted


def test_an_opponent_without_weights_is_left_for_another_and_waited_for_once(pool: Pool) -> None:
    players = players_of(pool)
    players._patience = 0.4
    host, aborted = host_of(players, "nobody", "rival", "nobody", "nobody", "rival")
    assert host.request().away == "rival" and aborted == ["nobody"]
    players._patience = 3600.0
    assert host.request().away == "rival" and aborted == 3 * ["nobody"]


def test_a_player_is_unavailable_until_an_opponent_has_weights(pool: Pool) -> None:
    players = players_of(pool)
    players._patience = 0.4
    host, aborted = host_of(players, *OTHERS * ["nobody"])
    with pytest.raises(PlayerUnavailable, match="is its learner up"):
        host.request()
    assert len(aborted) == OTHERS
    pool.put("nobody", 1)
    players["nobody"].weights.fetch()
    assert host_of(players, "nobody")[0].request().away == "nobody"


def test_watched_weights_that_change_within_a_match_are_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    policy, result = build(1), MatchResult("m", np.ones(1, np.float32))
    client = SimpleNamespace(report=lambda match, outcomes: ("counted", ""))
    players = SimpleNamespace(opponents=lambda match, models: (policy,))
    recorder = SimpleNamespace(
        begins=lambda match, away: None, wants=lambda match: False, expected=lambda match: None,
        counted=lambda *_: None,
    )  # fmt: skip
    parts: Any = SimpleNamespace(series=1), client, players, recorder, lambda: None
    host = WatchingHost("main", *parts)
    observation = np.zeros((4, 3), np.float32)
    for changes in (False, True):
        host._models[match().id] = (None,)
        opponent = host.opponent(match())
        for _ in range(2):
            assert opponent.policy is not None
            opponent.policy.step(observation, generator=torch.Generator())
            if changes:
                with torch.no_grad():
                    next(policy.parameters()).add_(1.0)
        host.report(match(), result)
    begun, ended, begun_next, changed = lines_of(tmp_path)
    assert begun["first"] == ended["first"] == ended["last"] and not ended["changed"]
    assert changed["first"] == begun_next["first"] != changed["last"] and changed["changed"]
