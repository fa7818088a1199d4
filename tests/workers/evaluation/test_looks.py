"""Looks at learning players: what they measure, and when a league in one process takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import envs
from agents import build_policy
from agents.policies import Policy
from envs import exploitability
from league.empirical_game.returns import Returns
from league.matchmaking import Target, responses
from league.matchmaking.view import Player
from league.rules.plateau import Look
from league.state.league_state import LeagueState
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.evaluation import looks as looks_module
from workers.evaluation.cells import Evaluator
from workers.evaluation.looks import Looking, look
from workers.leagues.local import LocalLeague

pytestmark = pytest.mark.usefixtures("one_thread")


def policies(games: envs.TwoPlayerVectorEnv, count: int) -> list[Policy]:
    made = []
    for seed in range(count):
        policy = build_policy({"hidden_sizes": []}, games.single_observation_space, games.single_action_space, seed)
        generator = torch.Generator().manual_seed(seed)
        for parameter in policy.parameters():
            parameter.data.add_(2.0 * torch.randn(parameter.shape, generator=generator))
        made.append(policy)
    return made


def evaluator_for(games: envs.TwoPlayerVectorEnv, players: list[Policy], **options: Any) -> Evaluator:
    return Evaluator(games, Returns(), players.__getitem__, seed=1, **{"bound": games.max_return, **options})


@pytest.mark.parametrize("env_id", ["openspiel:kuhn_poker", "matrix:biased_rps"])
def test_the_interval_of_a_look_holds_the_exact_return(env_id: str) -> None:
    games = envs.make_two_player(env_id, 256, 3)
    me, *others = policies(games, 4)
    form = exploitability.load(env_id)
    plans = [form.plans(exploitability.tabulate(form, policy.probabilities)) for policy in (me, *others)]
    shares = np.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
    in_first = sum(share * form.payoff(plans[0][0], plan[1]) for share, plan in zip(shares[1], plans[1:], strict=True))
    in_second = -sum(
        share * form.payoff(plan[0], plans[0][1]) for share, plan in zip(shares[0], plans[1:], strict=True)
    )
    expected = (in_first + in_second) / 2.0
    evaluator = evaluator_for(games, others)
    for number in range(4):
        seen = look(evaluator, me, Target(np.arange(3), shares, 1023), generation=2, steps=number)
        assert (seen.generation, seen.steps, seen.games) == (2, number, 1024)
        assert seen.lower < expected < seen.upper
        assert seen.lower < seen.mean < seen.upper and seen.upper - seen.lower < games.max_return


def test_a_look_by_member_estimates_the_return_against_each_in_each_seat() -> None:
    games = envs.make_two_player("openspiel:kuhn_poker", 500, 3)
    me, *others = policies(games, 4)
    form = exploitability.load("openspiel:kuhn_poker")
    mine, *plans = [form.plans(exploitability.tabulate(form, policy.probabilities)) for policy in (me, *others)]
    alike = Target(np.arange(3), np.full((2, 3), 1 / 3), 24_000, by_member=True)
    seen = look(evaluator_for(games, others), me, alike, 0, 0)
    assert [slot for slot, *_ in seen.members] == [0, 1, 2]
    for (_, in_first, in_second), plan in zip(seen.members, plans, strict=True):
        assert in_first == pytest.approx(-form.payoff(plan[0], mine[1]), abs=0.12)  # error 1.4 / sqrt(4000)
        assert in_second == pytest.approx(form.payoff(mine[0], plan[1]), abs=0.12)
    few = look(evaluator_for(games, others), me, Target(np.arange(3), np.eye(3)[:2], 2, by_member=True), 0, 0)
    assert [[mean is None for mean in means] for _, *means in few.members] == [[False, True], [True, False]]


def test_a_return_beyond_the_given_bound_is_refused() -> None:
    games = envs.make_two_player("openspiel:kuhn_poker", 64, 3)
    players = policies(games, 2)
    alone = Target(np.array([0]), np.ones((2, 1)), 128)
    with pytest.raises(ConfigurationError, match=r"give league\.max_return, at least 2"):
        look(evaluator_for(games, players[:1], bound=1.0), players[1], alone, 0, 0)


RETURNS = {"freeze": "returns", "checkpoint_min_steps": 600, "checkpoint_max_steps": 6000, "patience": 2}


def league(**changes: Any) -> LocalLeague:
    given = {
        "env": "matrix:rps",
        "network": {"hidden_sizes": []},
        "algorithm": {"name": "ppo", "minibatch_size": 64},
        "players": {
            "main": {"kind": "main_agent"},
            "exploiter": {"kind": "main_exploiter", "config": {**RETURNS, "look_games": 64}},
        },
        "games": 32,
        "tables": 2,
        "unroll_length": 4,
        "lanes": 32,
        "period_steps": 300,
        "evaluation_games": 32,
        "evaluation_share": 0.5,
    }
    return LocalLeague(LeagueConfig.from_dict({**given, **changes}))


def test_looks_come_at_ends_of_periods_in_half_of_the_evaluation_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local, asked = league(), []

    def told(evaluator: Evaluator, policy: Policy, target: Target, generation: int, steps: int) -> Look:
        assert policy is local.trainees["exploiter"].policy
        assert target.slots.tolist() == [local.league.state.players["main"].slot]
        asked.append(steps)
        return look(evaluator, policy, target, generation, steps)

    monkeypatch.setattr(looks_module, "look", told)
    exploiter = local.trainees["exploiter"]
    while exploiter.steps < 1200:
        local.learn(exploiter)
    assert asked == [], "before there is any time for evaluation"
    local._training_time = 1e9
    while exploiter.steps < 2400:
        local.learn(exploiter)
    assert asked == list(range(1536, 2400, 384))
    local._looking_time = 0.5e9
    local.learn(exploiter)
    while exploiter.steps < 3600:
        local.learn(exploiter)
    assert asked[-1] < 2400
    assert [seen.steps for seen in local.league.state.looked["exploiter"]] == asked
    assert all(seen.games == 64 for seen in local.league.state.looked["exploiter"])


def test_no_look_is_taken_where_win_rates_decide() -> None:
    local = league(players={"main": {"kind": "main_agent"}, "exploiter": {"kind": "main_exploiter"}})
    local._training_time = 1e9
    local.look(local.trainees["exploiter"])
    local.look(local.trainees["main"])
    assert local.league.state.looked == {} and local._looking_time == 0.0


def test_a_player_of_an_unknown_kind_is_passed_over() -> None:
    state = LeagueState(players={"nem": Player(name="nem", slot=0, kind="nemesis")})
    nothing: Any = None
    assert not Looking(nothing, nothing, nothing, 1).look(state, lambda player: 1000)
    assert responses(state.roster) == {}
