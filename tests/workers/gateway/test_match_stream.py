"""The streaming thread of a league's gateway: matches kept, players offered, segments sent."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from warren.errors import LeagueError, PlayerUnavailable
from workers.gateway.matches import role as module
from workers.gateway.matches.role import MatchStream
from workers.leagues import streaming
from workers.rollout.sending import outbox

LANES, UNROLL = 4, 2


class Learner:
    """Queue of a learner that always has room."""

    def __init__(self, name: str) -> None:
        self.name, self.sent = name, 0

    def __call__(self, channel: Any) -> Learner:
        return self

    def declare(self) -> None:
        """Do nothing: the queue exists."""

    def offer(self, name: str, args: Any) -> bool:
        self.sent += 1
        return True

    def withdraw(self) -> None:
        """Do nothing: everything is sent."""


class Gateway:
    """Stand-in for a league's gateway: `ready` trajectories and errors that are `raising`, by player."""

    def __init__(self, *players: str) -> None:
        self.learners, self.ready = list(players), dict.fromkeys(players, LANES)
        self.raising: dict[str, Exception] = {}
        self.offered: list[list[str]] = []
        self.prepared: list[str] = []
        self.collected: list[str] = []
        self.left: list[str] = []
        self.stopping = threading.Event()
        weights = SimpleNamespace(version=0, fetch=lambda: None)
        self._players = {name: SimpleNamespace(name=name, weights=weights) for name in players}
        self.players = SimpleNamespace(all=lambda: list(self._players.values()))
        self.shared: list[dict[str, float]] = []
        self.seating = SimpleNamespace(offer=self._offer, share=self.shared.append)
        share = SimpleNamespace(updates=1)
        self.league: Any = SimpleNamespace(
            lanes=LANES, unroll_length=UNROLL, earned_share=0.0, players=dict.fromkeys(players, share)
        )
        connection = SimpleNamespace(
            connection_errors=(OSError,), default_channel=None, ensure_connection=lambda **_: None, close=lambda: None
        )
        self.session: Any = SimpleNamespace(
            app=SimpleNamespace(connection_for_write=lambda: connection),
            config=SimpleNamespace(segments_per_update=1, batch_segments=1, players="actors", actors=1),
            topology=SimpleNamespace(key_prefix="r:", learner_queue=Learner),
            redis=SimpleNamespace(get=lambda key: None),
            ledger=SimpleNamespace(confirm=lambda segment: None),
        )

    def run(self, looks: int) -> None:
        """Stream until games were offered `looks` times."""
        self.looks = looks
        MatchStream(self, self.session, self.league, self.stopping).run()

    def _offer(self, players: list[str]) -> None:
        self.offered.append(players)
        if len(self.offered) >= self.looks:
            self.stopping.set()

    def learning(self) -> list[str]:
        return list(self.learners)

    def player(self, name: str) -> Any:
        return self._players[name]

    def prepare(self, home: Any) -> None:
        self.prepared.append(home.name)
        if home.name in self.raising:
            raise self.raising[home.name]

    def matches_of(self, home: Any) -> Any:
        return SimpleNamespace(ready=self.ready[home.name])

    def collect(self, home: Any, actors: int, trajectories: int) -> dict[str, Any]:
        assert trajectories == LANES
        self.collected.append(home.name)
        arrays = {"terminated": np.zeros((UNROLL, trajectories))}
        number = len(self.collected)
        return {"source": "s", "number": number, "steps": 8, "generation": 0, "trajectory": arrays}

    def leave_matches(self, home: Any) -> None:
        self.left.append(home.name)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BoundedSender", lambda app, queue, *_, **__: queue)
    monkeypatch.setattr(streaming, "LOOK_EVERY", 0.0)
    for one in (streaming, module):
        monkeypatch.setattr(one, "AGAIN_AFTER", 0.0)


def test_only_complete_segments_are_sent_and_all_players_are_offered() -> None:
    gateway = Gateway("a", "b")
    gateway.ready["b"] = LANES - 1
    gateway.run(5)
    assert set(gateway.collected) == {"a"} and gateway.offered == [["a", "b"]] * 5 and not gateway.left


@pytest.mark.parametrize("error", [PlayerUnavailable("it was reset"), LeagueError("nobody answered")], ids=str)
def test_a_player_whose_matches_fail_is_not_offered_and_is_tried_again(error: Exception) -> None:
    gateway = Gateway("a", "b")
    gateway.raising["b"] = error
    gateway.run(5)
    assert gateway.offered == [["a"]] * 5 and gateway.prepared.count("b") > 1
    assert set(gateway.collected) == {"a", "b"}, "trajectories from before are sent"


def test_a_player_that_learns_no_more_gives_its_matches_back() -> None:
    gateway = Gateway("a", "b")
    gateway.learners = ["a"]
    gateway.run(3)
    assert "b" in gateway.left and "a" not in gateway.left
    assert gateway.offered == [["a"]] * 3 and set(gateway.collected) <= {"a"}


def test_games_are_allotted_by_the_shares_that_players_have_earned() -> None:
    gateway = Gateway("a", "b")
    gateway.league.earned_share = 0.5
    gateway.session.redis = SimpleNamespace(get=lambda key: None, hgetall=lambda key: {b"a": b"1.0", b"b": b"3.0"})
    gateway.run(5)
    assert gateway.shared and all(one == {"a": 1.0, "b": 3.0} for one in gateway.shared)
