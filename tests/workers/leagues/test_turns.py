"""Tests of players' turns by their shares: in one process that plays for all, and among learners that ask."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from math import exp
from types import SimpleNamespace
from typing import cast

import pytest
import redis

from league.redis.shared_earnings import SharedEarnings
from workers.config.league import LeagueConfig
from workers.leagues import turns as turns_module
from workers.leagues.learner import LeagueLearnerRole
from workers.leagues.local import LocalLeague
from workers.leagues.turns import RoundTurns, Turns, shares_of
from workers.learning.metrics import Progress
from workers.learning.trainer import Trainer

ROUND = 512  # decisions


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep learners in their places: none is taken for silent because this process was stopped."""
    monkeypatch.setattr(turns_module, "AWAY", 3600.0)


def league(shares: dict[str, float], **settings: float) -> LeagueConfig:
    players = {name: {"kind": "random", "updates": share} for name, share in shares.items()}
    return LeagueConfig.from_dict(
        {"env": "matrix:rps", "players": players, "lanes": 64, "unroll_length": 8, **settings}
    )


class Learners:
    """Gathered learners; `learn` makes updates of those that may begin a round, in random order."""

    def __init__(self, redis_url: str, run_name: str, shares: dict[str, float], **settings: float) -> None:
        client, prefix = redis.Redis.from_url(redis_url), f"warren.{run_name}:"
        self.turns = {name: RoundTurns(client, prefix, name, league(shares, **settings)) for name in shares}
        self.steps = Counter[str]()
        self.random = random.Random(3)

    def may(self, name: str) -> bool:
        """Return whether the learner of `name` would begin a round."""
        role = LeagueLearnerRole.__new__(LeagueLearnerRole)  # its constructor needs a session with a broker
        role.turns = self.turns[name]
        role.trainer = cast(Trainer, SimpleNamespace(leads=True, progress=Progress(steps=self.steps[name])))
        return role.is_its_turn()

    def learn(self, names: list[str], updates: int) -> Counter[str]:
        before, made = self.steps.copy(), 0
        while made < updates:
            name = self.random.choice(names)
            if self.may(name):
                self.steps[name] += ROUND
                made += 1
        return self.steps - before


SHARES = [{"a": 0.25, "b": 0.75}, {"a": 8.0, "b": 1.0, "c": 1.0, "d": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}]


@pytest.mark.parametrize("shares", SHARES, ids=["quarter", "eight", "even"])
def test_turns_in_one_process_give_each_player_its_share(shares: dict[str, float]) -> None:
    turns, made = Turns(shares_of(league(shares)), credit=4 * ROUND), Counter[str]()
    for _ in range(1100):
        name = turns.next(list(shares))
        turns.had(name, ROUND)
        made[name] += 1
    for name, share in shares.items():
        assert made[name] == pytest.approx(1100 * share / sum(shares.values()), abs=2)


def test_changed_shares_hold_from_then_on() -> None:
    turns, made = Turns({"a": 8.0, "b": 1.0, "c": 1.0}, credit=4 * ROUND), Counter[str]()
    for turn in range(1100):
        if turn == 100:
            turns.share({"a": 2.0, "b": 6.0, "c": 2.0})
            made.clear()
        name = turns.next(["a", "b", "c"])
        turns.had(name, ROUND)
        made[name] += 1
    assert made == pytest.approx({"a": 200, "b": 600, "c": 200}, abs=6)


def test_the_player_furthest_behind_is_next() -> None:
    turns = Turns({}, credit=1000)
    assert turns.next(["a", "b"]) == "a"
    turns.had("a", 64)
    assert turns.next(["a", "b"]) == "b"
    turns.had("b", 32)
    assert turns.next(["a", "b"]) == "b"
    turns.keep(["a"])
    assert turns.next(["a"]) == "a"


@pytest.mark.parametrize("shares", SHARES, ids=["quarter", "eight", "even"])
def test_gathered_learners_that_ask_by_themselves_give_each_player_its_share(
    redis_url: str, run_name: str, shares: dict[str, float]
) -> None:
    found = Learners(redis_url, run_name, shares).learn(list(shares), 330)
    for name, share in shares.items():
        rounds, due = found[name] / ROUND, 330 * share / sum(shares.values())
        assert rounds == pytest.approx(due, abs=3 * max(1.0, share / min(shares.values())))


@pytest.mark.parametrize("earned_share", [0.0, 0.5])
def test_gathered_learners_follow_the_shares_that_players_earn(
    redis_url: str, run_name: str, earned_share: float
) -> None:
    shares = {"a": 8.0, "b": 1.0, "c": 1.0}
    learners = Learners(redis_url, run_name, shares, earned_share=earned_share)
    learners.learn(list(shares), 50)
    SharedEarnings(redis.Redis.from_url(redis_url), f"warren.{run_name}:league:").put({"a": 2.0, "b": 6.0, "c": 2.0})
    found = learners.learn(list(shares), 300)
    assert found["b"] / ROUND == pytest.approx(180 if earned_share else 30, abs=18)


def test_nobody_waits_for_a_player_that_left_and_it_makes_up_for_nothing(redis_url: str, run_name: str) -> None:
    learners = Learners(redis_url, run_name, {"a": 1.0, "b": 1.0, "c": 1.0})
    learners.learn(["a", "b", "c"], 30)
    learners.turns["c"].leave()
    learners.turns["c"].stay()  # keeping a learner's place does not end a pause
    assert learners.learn(["a", "b"], 60).keys() == {"a", "b"}
    found = learners.learn(["a", "b", "c"], 90)
    assert all(rounds == pytest.approx(30, abs=3) for rounds in (steps / ROUND for steps in found.values()))


def test_a_slow_player_is_waited_for_and_a_silent_one_is_not(
    redis_url: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = Learners(redis_url, run_name, {"a": 1.0, "b": 1.0})
    learners.learn(["a", "b"], 20)
    while learners.turns["a"].mine(learners.steps["a"]):
        learners.steps["a"] += ROUND
    assert abs(learners.steps["a"] - learners.steps["b"]) <= 3 * ROUND
    learners.turns["b"].stay()
    assert not learners.turns["a"].mine(learners.steps["a"])
    monkeypatch.setattr(turns_module, "AWAY", -1.0)
    assert learners.turns["a"].mine(learners.steps["a"])


def test_a_learner_that_is_started_again_goes_on_with_its_players_turns(redis_url: str, run_name: str) -> None:
    shares = {"a": 1.0, "b": 3.0}
    learners = Learners(redis_url, run_name, shares)
    first = learners.learn(["a", "b"], 40)
    learners.turns["b"] = RoundTurns(redis.Redis.from_url(redis_url), f"warren.{run_name}:", "b", league(shares))
    found = first + learners.learn(["a", "b"], 40)
    assert found["b"] / ROUND == pytest.approx(60, abs=6)


@pytest.mark.usefixtures("one_thread")
def test_a_league_in_one_process_learns_by_what_its_players_earn() -> None:
    given = {
        "env": "matrix:rps",
        "players": {"main": {"kind": "main_agent"}, "hunter": {"kind": "main_exploiter"}},
        **{"network": {"hidden_sizes": []}, "algorithm": {"minibatch_size": 32}, "evaluation_games": 8},
        **{"games": 8, "lanes": 8, "unroll_length": 4, "tables": 1, "earned_share": 0.9, "cell_least": 8},
    }
    local = LocalLeague(LeagueConfig.from_dict(given))
    for version in (1, 2):
        local.frozen[local.league.snapshot("hunter", version).name] = local.opponent("hunter")
    slots = local.league.state.roster.historical.tolist()
    for first, second in product(slots, repeat=2):  # the newer one wins
        local.returns.add(first, second, 10**6, 10**6 * ((first > second) - (first < second)), 10**6)
    for _ in range(20):
        local.round()
    main, hunter = (local.trainees[name].steps for name in ("main", "hunter"))
    assert local._shares()["hunter"] == pytest.approx(0.1 + 1.8 / (1.0 + exp(-0.5)))
    assert hunter / (main + hunter) == pytest.approx(local._shares()["hunter"] / 2.0, abs=0.1)
    assert hunter > main


@pytest.mark.usefixtures("one_thread")
def test_learning_follows_the_mixture_against_best_responses() -> None:
    player = {"kind": "self_play", "config": {"snapshot_every": 32}}
    given = {
        "env": "matrix:rps",
        "players": {"main": player, "hunter": {**player, "algorithm": {"learning_rate": 0.1}}},
        **{"network": {"hidden_sizes": []}, "algorithm": {"minibatch_size": 32}, "evaluation_games": 8},
        **{"games": 8, "lanes": 8, "unroll_length": 4, "tables": 1, "period_steps": 32, "earned_share": 0.9},
        **{"evaluation": "exact", "mixture_against": "best_responses"},
    }
    local = LocalLeague(LeagueConfig.from_dict(given))
    for _ in range(20):
        local.round()
    local.evaluate(600.0)  # until nothing is left to do
    slots, mixture = local.mixture()
    of_hunter = [local.league.state.roster.by_slot[slot].parent == "hunter" for slot in slots.tolist()]
    part = float(mixture[:, of_hunter].sum()) / 2.0
    assert local.returns.least_exploitable is not None and part > 0.0
    assert local._shares() == pytest.approx({"main": 0.1 + 1.8 * (1.0 - part), "hunter": 0.1 + 1.8 * part})
