"""Tests of a served league's actor: its answers to groups of games, its segments, and its reports to the league."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.waiting import PATIENCE

import envs
from agents.policies import Policy
from agents.trajectories import Trajectory
from league.state.in_memory import MemoryLeague
from warren.errors import LeagueError, WireError
from workers.config.league import LeagueConfig, PlayerConfig
from workers.config.schema import Config, EnvConfig, Sampling
from workers.env.match_group import MatchGroup
from workers.leagues import actor as league_actor
from workers.leagues import served as module
from workers.leagues.known_players import Learning
from workers.leagues.served import ServedLeagueRole
from workers.leagues.served_games import GamesElsewhere
from workers.leagues.wire import Invitation
from workers.rollout.games.decisions import decide
from workers.rollout.games.seat_map import Opponent
from workers.rollout.games.selfplay_sampler import MatchSampler
from workers.rollout.sampler import SamplerClosed
from workers.runtime.league_policies import LeaguePolicies

pytestmark = pytest.mark.usefixtures("one_thread")
GAMES = 16


class Client:
    """The league's services, in this process: two players that learn, and one snapshot of each."""

    def __init__(self) -> None:
        self.league = MemoryLeague(seed=1)
        for name in ("a", "b"):
            self.league.add_player(name, "random", {"self_share": 0.3})
            self.league.snapshot(name, 0)
        self.away = False

    def request(self, player: str, lease: float, opponents: int = 1) -> Any:
        if self.away:
            raise LeagueError("the league did not answer")
        return Invitation(self.league.request(player, opponents), None)

    def report(self, match: Any, outcomes: str) -> tuple[str, str]:
        self.league.report(match, outcomes)
        return "counted", ""

    def abort(self, match: Any) -> None:
        self.league.abort(match)

    def extend(self, matches: list[str], lease: float) -> list[bool]:
        return [match in self.league.state.matches for match in matches]


class Weights:
    """The newest weights of a player."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version, self.generation = policy, 0, 0

    def stamped(self, newer_than: int) -> Any:
        if self.version <= newer_than:
            return None
        stamp = {"version": self.version, "generation": self.generation}
        return stamp, self.policy.state_dict()


class Players:
    """Two players that learn; their opponents, frozen or learning, are policies of their own."""

    def __init__(self, made: LeaguePolicies) -> None:
        self._learning = {}
        for seed, name in enumerate("ab"):
            subscription = SimpleNamespace(stop=lambda: None)
            weights, policy = Weights(made.new(name, seed)), made.new(name, seed)
            self._learning[name] = Learning(name, weights, subscription, policy, version=0)  # type: ignore[arg-type]
        self.rivals = {name: made.new(name, 9) for name in ("a@0", "b@0", "a", "b")}

    def __getitem__(self, name: str) -> Learning:
        return self._learning[name]

    def all(self) -> list[Learning]:
        return list(self._learning.values())

    def fits(self, match: Any) -> bool:
        return True

    def opponents(self, match: Any, models: Any) -> tuple[Policy | None, ...]:
        return (None if match.away == match.home else self.rivals[match.away],)


@pytest.fixture
def league() -> LeagueConfig:
    return LeagueConfig(
        players={name: PlayerConfig(kind="random") for name in "ab"}, env="openspiel:kuhn_poker",
        network={"hidden_sizes": []}, games=64, tables=2, lanes=24, unroll_length=4, match_games=10,
    )  # fmt: skip


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(league_actor, "LeagueClient", lambda *_: client)
    return client


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, league: LeagueConfig, client: Client) -> ServedLeagueRole:
    monkeypatch.setattr(league_actor, "KnownPlayers", lambda session, name, policies, *_: Players(policies))
    counts = SimpleNamespace(say=lambda count: None, fewer=lambda count: None)
    monkeypatch.setattr(module, "GroupCounts", lambda *_: counts)
    session: Any = SimpleNamespace(
        app=SimpleNamespace(task=lambda *_, **__: None),
        redis=None,
        topology=SimpleNamespace(key_prefix="r:"),
        ledger=SimpleNamespace(make=lambda segment: None),
    )
    config = Config(trial="t", run="r", env=EnvConfig(id="e"), sampling=Sampling.served)
    return ServedLeagueRole(config, session, league)


def groups_of(league: LeagueConfig, count: int = 2) -> list[MatchGroup]:
    return [MatchGroup(f"g{number}", league, GAMES, number) for number in range(count)]


def ask(actor: ServedLeagueRole, groups: list[MatchGroup]) -> None:
    answers: list[Any] = actor.act([group.call() for group in groups])
    for group, answer in zip(groups, answers, strict=True):
        group.step(answer)


@contextmanager
def stepping(actor: ServedLeagueRole, groups: list[MatchGroup]) -> Iterator[threading.Event]:
    """Let env runners ask until the block ends; yield an event that pauses them."""
    ended, pause = threading.Event(), threading.Event()

    def run() -> None:
        while not ended.is_set():
            if pause.is_set():
                ended.wait(0.01)
                continue
            try:
                ask(actor, groups)
            except SamplerClosed:
                return

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run)
        try:
            yield pause
        finally:
            ended.set()
            if not asking.done():
                actor.stopping.set()
            asking.result(PATIENCE)


@pytest.mark.parametrize("recorded", [False, True])
def test_served_games_give_the_same_segments_and_records_as_an_actors_own(league: LeagueConfig, recorded: bool) -> None:
    made, player = LeaguePolicies(league), "a" if recorded else None
    settings: dict[str, Any] = {"unroll_length": 4, "tables": 2, "minimax": 0.5}
    group = MatchGroup("g", replace(league, replay_every=int(recorded)), GAMES, 5)
    play = GamesElsewhere(GAMES, made.new("a", 1), recorded=player, seed=7, **settings)
    games = envs.make_two_player(league.env, GAMES, seed_of(group))
    sampler = MatchSampler(games, made.new("a", 1), 7, player=player, **settings)
    sampler.restart()
    for one in (play, sampler):
        one.seat(1, Opponent("rival", made.new("b", 2), recorded))
        one.renew(3)
    for _ in range(2):  # the sampler's games began as often
        group.step({"player": "a", "begin": True})
    generator = torch.Generator().manual_seed(7)
    play.hear(group.call())
    while play.ready < 60:
        (action,) = decide([play], generator)
        group.step({"player": "a", "action": action})
        play.hear(group.call())
        sampler.advance()
    np.testing.assert_equal(play.take(60).to_dict(), sampler.take(60).to_dict())
    results, own = play.pop_results(), sampler.pop_results()
    assert {result.opponent for result in results} == {"self", "rival"}
    assert any(result.games for result in results) is recorded
    for result, other in zip(results, own, strict=True):
        np.testing.assert_equal(asdict(result), asdict(other))


def seed_of(group: MatchGroup) -> int:
    return int(np.random.SeedSequence([group._seed, 0]).generate_state(1)[0] >> 1)


def test_a_segment_has_one_player_and_every_match_is_counted_once(
    actor: ServedLeagueRole, league: LeagueConfig, client: Client
) -> None:
    with stepping(actor, groups_of(league)):
        for number, name in enumerate("abab"):
            payload = actor.collect(actor.players[name], 1, 24)
            trajectory = Trajectory.from_dict(payload["trajectory"], actor.spec)
            assert trajectory.num_slots == 24 and payload["number"] == number and payload["steps"] == 96
    actor.leave()
    counters = client.league.state.counters
    assert counters["counted"] > 8 and not client.league.state.matches
    assert counters["issued"] == counters["counted"] + counters["aborted"]


def test_groups_that_ask_together_share_a_forward_pass_for_each_model(
    actor: ServedLeagueRole, league: LeagueConfig
) -> None:
    passes: list[int] = []
    for policy in {id(policy): policy for policy in actor.players.rivals.values()}.values():  # type: ignore[attr-defined]
        count(policy, passes)
    count(actor.players["a"].policy, passes)
    groups = groups_of(league, 4)
    actor._home, actor._wanted = actor.players["a"], 1000
    for _ in range(6):
        before = len(passes)
        ask(actor, groups)
        assert len(passes) - before <= 5, "one for the player, one for each of four models"
    assert max(passes) > GAMES, "a pass serves several groups"


def count(policy: Any, passes: list[int]) -> None:
    step = policy.step
    policy.step = lambda observation, *args, **more: passes.append(len(observation)) or step(observation, *args, **more)


def test_a_repeated_call_is_answered_as_before_and_counts_once(actor: ServedLeagueRole, league: LeagueConfig) -> None:
    (group,) = groups_of(league, 1)
    actor._home, actor._wanted = actor.players["a"], 1000
    for _ in range(5):
        call = group.call()
        (answer,) = actor.act([call])
        again: list[Any] = actor.act([call, call])
        assert all(one is answer for one in again)
        assert isinstance(answer, dict)
        group.step(answer)
    play = actor._known["g0"].of_player["a"].play
    assert play.decisions <= 4 * GAMES


def test_the_games_of_a_reset_player_begin_anew(actor: ServedLeagueRole, league: LeagueConfig, client: Client) -> None:
    home: Any = actor.players["a"]
    with stepping(actor, groups_of(league)):
        actor.collect(home, 1, 24)
        before = set(client.league.state.matches)
        home.weights.version, home.weights.generation = 4, 1
        payload = actor.collect(home, 1, 24)
        assert payload["generation"] == 1 and set(payload["trajectory"]["version"].tolist()) == {4}
        assert before.isdisjoint(client.league.state.matches)


def test_a_group_that_was_with_another_actor_begins_anew(actor: ServedLeagueRole, league: LeagueConfig) -> None:
    (group,) = groups_of(league, 1)
    actor._home, actor._wanted = actor.players["a"], 1000
    group.step({"player": "a", "begin": True})
    group.step({"player": "a", "action": group.call()["action_mask"].argmax(axis=1)})
    (answer,) = actor.act([group.call()])
    assert answer == {"player": "a", "begin": True}


def test_matches_of_a_group_that_has_gone_are_given_back(
    actor: ServedLeagueRole, league: LeagueConfig, client: Client
) -> None:
    actor._home, actor._wanted = actor.players["a"], 1000
    ask(actor, groups_of(league))
    assert len(client.league.state.matches) == 4 and actor.groups == 2
    actor._known["g0"].used_at -= league.lease + 1
    assert actor.forget_idle() == 1
    assert len(client.league.state.matches) == 2 and actor.groups == 1


def test_a_group_goes_to_an_actor_that_has_fewer_and_its_matches_end(
    actor: ServedLeagueRole, league: LeagueConfig, client: Client
) -> None:
    actor._home, actor._wanted = actor.players["a"], 1000
    groups = groups_of(league)
    for _ in range(3):
        ask(actor, groups)
    actor._counts.fewer = lambda count: 3 if count > 1 else None  # type: ignore[method-assign]
    for group in actor._known.values():
        group.came_at -= module.STAY + 1
    answers = actor.act([group.call() for group in groups])
    assert answers[0] == {"leave": "actor-3.act"} and isinstance(answers[1], dict) and "action" in answers[1]
    assert actor.groups == 1 and len(client.league.state.matches) == 2
    groups[0].step({"leave": "actor-3.act"})
    call = groups[0].call()
    assert call["player"] is None
    assert actor.act([call]) == [{"player": "a", "begin": True}], "it came back, since that actor was gone"


def test_an_absent_league_is_an_error_for_the_collector_and_groups_wait(
    actor: ServedLeagueRole, league: LeagueConfig, client: Client
) -> None:
    client.away = True
    with stepping(actor, groups_of(league)):
        with pytest.raises(LeagueError, match="did not answer"):
            actor.collect(actor.players["a"], 1, 24)
        client.away = False
        assert actor.collect(actor.players["a"], 1, 24)["steps"] == 96


def test_no_more_trajectories_are_made_ahead_than_allowed(actor: ServedLeagueRole, league: LeagueConfig) -> None:
    home = actor.players["a"]
    with stepping(actor, groups_of(league)):
        actor.collect(home, 1, 24)
        matches: Any = home.matches
        limit = module.AHEAD * 24
        with actor._changed:
            assert actor._changed.wait_for(lambda: matches.ready >= limit, timeout=PATIENCE) or not actor._may_play()
            assert matches.ready < limit + 4 * GAMES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"games": 6}, "a multiple of 2 \\* tables = 4"),
        ({"observation": np.zeros((GAMES, 2), np.float32)}, "observation must be float32"),
        ({"to_move": np.full(GAMES, 2, np.int8)}, "to_move must be 0 or 1"),
        ({"done": np.ones(GAMES, np.bool_)}, "finished must be of the 16 games that are done"),
    ],
)
def test_a_malformed_call_is_refused_and_others_are_answered(
    actor: ServedLeagueRole, league: LeagueConfig, change: dict[str, Any], said: str
) -> None:
    actor._home, actor._wanted = actor.players["a"], 1000
    groups = groups_of(league)
    ask(actor, groups)
    wrong = {**groups[0].call(), **change}
    refused, answered = actor.act([wrong, groups[1].call()])
    assert isinstance(answered, dict)
    with pytest.raises(WireError, match=said):
        raise refused  # type: ignore[misc]
    (mended,) = actor.act([groups[0].call()])
    assert isinstance(mended, dict) and "action" in mended


def test_waiting_groups_are_told_that_the_actor_ends(actor: ServedLeagueRole, league: LeagueConfig) -> None:
    actor.stopping.set()
    with pytest.raises(SamplerClosed):
        ask(actor, groups_of(league))
    with pytest.raises(LeagueError, match="is to stop"):
        actor.collect(actor.players["a"], 1, 24)
