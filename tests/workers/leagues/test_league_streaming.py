"""Tests of a league's streaming actor: its next player, the segments it sends, and servers that are away."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis

from warren.errors import BrokerError, ConfigurationError, LeagueError, PlayerUnavailable
from workers.config.schema import Config, EnvConfig
from workers.leagues import streaming as module
from workers.leagues.streaming import LeagueStream
from workers.rollout.sending import outbox
from workers.runtime.segment_ledger import Segment

LANES, UNROLL = 8, 4  # 32 decisions a segment


class Sender:
    """A learner's queue for `room` segments. `arrived`: sends may complete; `begun`: released when a send begins."""

    arrived: threading.Event
    begun: threading.Semaphore

    def __init__(self) -> None:
        self.room = 1 << 30
        self.sent: list[dict[str, Any]] = []

    def withdraw(self) -> None:
        """Do nothing."""

    def offer(self, name: str, args: tuple[dict[str, Any]]) -> bool:
        assert name == "learner.learn"
        if not self.room:
            return False
        self.room -= 1
        self.begun.release()
        self.arrived.wait()
        self.sent.append(args[0])
        return True


class Actor:
    """A league's actor without real games. `learners`: the players that learn; `raising`: errors by player."""

    def __init__(self, *players: str, shares: dict[str, int] | None = None) -> None:
        self.learners = list(players)
        self.raising: dict[str, Exception] = {}
        self.collected: list[str] = []
        self.made = 0
        self.left: list[str] = []
        self.confirmed: list[int] = []
        self.league_away = self.redis_away = False
        self.limit = 0  # rollouts after which it stops
        self.stopping = threading.Event()
        self.config = Config(trial="t", run="r", env=EnvConfig(id="e"), actors=1)
        self.league: Any = SimpleNamespace(
            lanes=LANES, unroll_length=UNROLL, earned_share=0.0,
            players={name: SimpleNamespace(updates=(shares or {}).get(name, 1)) for name in players},
        )  # fmt: skip
        connection = SimpleNamespace(
            connection_errors=(OSError,), default_channel=None, ensure_connection=lambda **_: None, close=lambda: None
        )
        self.source = "actor-0"
        self.session: Any = SimpleNamespace(
            app=SimpleNamespace(connection_for_write=lambda: connection),
            config=self.config,
            topology=SimpleNamespace(key_prefix="r:", learner_queue=Queue),
            redis=SimpleNamespace(get=lambda key: None),
            ledger=SimpleNamespace(confirm=self.confirm),
        )
        self.players: dict[str, Any] = {
            name: SimpleNamespace(name=name, weights=SimpleNamespace(version=0, fetch=lambda: None)) for name in players
        }

    def player(self, name: str) -> Any:
        return self.players[name]

    def learning(self) -> list[str]:
        if self.league_away:
            raise LeagueError("the league did not answer")
        return list(self.learners)

    def confirm(self, segment: Segment) -> None:
        if self.redis_away:
            raise redis.ConnectionError("away")
        self.confirmed.append(segment.number)

    def collect(self, home: Any, actors: int, trajectories: int) -> dict[str, Any]:
        self.collected.append(home.name)
        if len(self.collected) >= self.limit:
            self.stopping.set()
        if home.name in self.raising:
            raise self.raising[home.name]
        number, self.made = self.made, self.made + 1
        arrays = {"terminated": np.zeros((UNROLL, trajectories))}
        return {"source": self.source, "number": number, "steps": 32, "generation": 3, "trajectory": arrays}

    def leave_matches(self, home: Any) -> None:
        self.left.append(home.name)


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sender]:
    """Return the learners' queues by player; all connections of an actor lead to the same."""
    made: dict[str, Sender] = {}

    def make(app: Any, queue: Any, *_: Any, **__: Any) -> Sender:
        return made.setdefault(queue.name, Sender())

    monkeypatch.setattr(Sender, "arrived", threading.Event(), raising=False)
    monkeypatch.setattr(Sender, "begun", threading.Semaphore(0), raising=False)
    Sender.arrived.set()
    monkeypatch.setattr(outbox, "BoundedSender", make)
    monkeypatch.setattr(module, "LOOK_EVERY", 0.0)
    monkeypatch.setattr(module, "AGAIN_AFTER", 0.0)
    return made


class Queue:
    """The queue of a player's learner."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, channel: Any) -> Queue:
        return self

    def declare(self) -> None:
        """Do nothing, as a broker does for a queue that exists."""


def run(actor: Actor, rollouts: int) -> LeagueStream:
    stream = LeagueStream(actor, actor.session, actor.league, actor.stopping)
    go_on(stream, actor, rollouts)
    return stream


def go_on(stream: LeagueStream, actor: Actor, rollouts: int) -> None:
    actor.collected.clear()
    actor.limit = rollouts
    actor.stopping.clear()
    stream.run()


def test_players_get_equally_many_decisions(senders: dict[str, Sender]) -> None:
    actor = Actor("a", "b", "c")
    run(actor, 30)
    assert {name: actor.collected.count(name) for name in "abc"} == {"a": 10, "b": 10, "c": 10}
    assert [len(sender.sent) for sender in senders.values()] == [10, 10, 10]


def test_a_player_gets_its_share_of_the_decisions(senders: dict[str, Sender]) -> None:
    actor = Actor("a", "b", shares={"a": 3})
    run(actor, 40)
    assert actor.collected.count("a") == 30


def test_a_player_gets_the_share_that_it_has_earned(senders: dict[str, Sender]) -> None:
    actor, asked = Actor("a", "b", shares={"a": 3}), []
    actor.league.earned_share = 0.5

    def earned(key: str) -> dict[bytes, bytes]:
        asked.append(key)
        return {b"a": b"1.0", b"b": b"3.0"} if len(asked) > 1 else {}

    actor.session.redis = SimpleNamespace(get=lambda key: None, hgetall=earned)
    run(actor, 40)
    assert actor.collected.count("b") == pytest.approx(30, abs=1)
    assert set(asked) == {"r:league:earned"}


def test_a_paused_player_is_not_played_for_and_makes_up_for_little(senders: dict[str, Sender]) -> None:
    actor = Actor("a", "b")
    stream = run(actor, 10)
    actor.learners = ["a"]
    go_on(stream, actor, 50)
    assert set(actor.collected) == {"a"}
    actor.learners = ["a", "b"]
    go_on(stream, actor, 40)
    assert actor.collected.count("b") == 20 + module.CREDIT // 2


def test_a_learner_that_is_away_holds_up_only_its_own_player(senders: dict[str, Sender]) -> None:
    actor = Actor("a", "b")
    stream = run(actor, 2)
    senders["a"].room = 0
    go_on(stream, actor, 20)
    assert actor.collected.count("a") == 1, "one segment waits for room"
    assert len(senders["b"].sent) == 20
    senders["a"].room = 1 << 30
    go_on(stream, actor, 20)
    numbers = [[payload["number"] for payload in sender.sent] for sender in senders.values()]
    assert sorted([*numbers[0], *numbers[1]]) == sorted({*numbers[0], *numbers[1]}), "no number is used twice"
    assert sorted(actor.confirmed) == sorted([*numbers[0], *numbers[1]])[: len(actor.confirmed)]


def test_segments_carry_their_generation(senders: dict[str, Sender]) -> None:
    run(Actor("a"), 1)
    (payload,) = senders["a"].sent
    assert (payload["round"], payload["number"], payload["generation"]) == (None, 0, 3)
    assert payload["trajectory"]["terminated"].shape == (UNROLL, LANES)


def test_a_player_without_opponents_is_passed_over(senders: dict[str, Sender], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER", 3600.0)
    actor = Actor("a", "b")
    actor.raising["a"] = PlayerUnavailable("a is paused")
    run(actor, 20)
    assert len(senders["b"].sent) == actor.collected.count("b") == 19
    assert "a" not in senders


def test_a_player_without_weights_is_passed_over_and_the_pool_is_asked(senders: dict[str, Sender]) -> None:
    actor = Actor("a", "b")
    weights = actor.players["a"].weights
    weights.version, asked = -1, []
    weights.fetch = lambda: asked.append(1) or (setattr(weights, "version", 0) if len(asked) > 3 else None)
    run(actor, 20)
    assert "a" in actor.collected and len(asked) == 4


def test_an_absent_league_is_asked_again_while_its_players_are_played_for(senders: dict[str, Sender]) -> None:
    actor = Actor("a")
    stream = run(actor, 1)
    actor.league_away = True
    go_on(stream, actor, 5)
    assert len(senders["a"].sent) == 6


def test_segments_that_redis_could_not_confirm_are_confirmed_later(senders: dict[str, Sender]) -> None:
    actor = Actor("a")
    actor.redis_away = True
    stream = run(actor, 3)
    assert actor.confirmed == []
    actor.redis_away = False
    go_on(stream, actor, 2)
    assert actor.confirmed == [0, 1, 2, 3, 4]


def test_games_that_fail_are_made_anew_once_and_then_end_the_actor(senders: dict[str, Sender]) -> None:
    actor = Actor("a")
    actor.raising["a"] = ConfigurationError("the game has crashed")
    with pytest.raises(ConfigurationError, match="the game has crashed"):
        run(actor, 100)
    assert (actor.left, actor.collected) == (["a"], ["a", "a"])


def test_a_far_actor_plays_on_while_segments_are_being_sent(senders: dict[str, Sender]) -> None:
    Sender.arrived.clear()
    actor = Actor("a")
    collect = actor.collect

    def collect_beside(*given: Any) -> dict[str, Any]:
        payload = collect(*given)
        if actor.stopping.is_set():
            for _ in range(outbox.SENDERS - 1):  # all sends before this one, at the same time
                assert Sender.begun.acquire(timeout=30)
            assert senders["a"].sent == []
            Sender.arrived.set()
        return payload

    actor.collect, actor.limit = collect_beside, outbox.SENDERS
    LeagueStream(actor, actor.session, actor.league, actor.stopping, far=True).run()
    numbers = [payload["number"] for payload in senders["a"].sent]
    assert len(numbers) >= outbox.SENDERS - 1
    assert sorted(numbers) == sorted(actor.confirmed)


def test_a_full_queue_of_a_far_actor_holds_up_only_its_own_player(senders: dict[str, Sender]) -> None:
    senders["a"] = Sender()
    senders["a"].room = 0
    actor = Actor("a", "b")
    actor.limit = 40
    LeagueStream(actor, actor.session, actor.league, actor.stopping, far=True).run()
    assert senders["a"].sent == []
    assert actor.collected.count("a") <= outbox.SENDERS


def test_a_far_actors_failure_to_send_ends_the_stream(senders: dict[str, Sender]) -> None:
    actor = Actor("a")
    actor.limit = 1 << 30
    senders["a"] = SimpleNamespace(offer=raises(BrokerError("the broker has been away")), withdraw=lambda: None)
    with pytest.raises(BrokerError, match="has been away"):
        LeagueStream(actor, actor.session, actor.league, actor.stopping, far=True).run()


def raises(error: Exception) -> Any:
    def offer(*_: Any) -> bool:
        raise error

    return offer
