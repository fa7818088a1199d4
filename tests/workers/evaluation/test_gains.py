"""Evaluators measure what the newest frozen response of each best_response player gains from its target."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch

from agents.policies import Policy
from envs import exploitability
from league.rules.gains import Gain
from warren.errors import PoolError
from workers.config.league import LeagueConfig
from workers.evaluation.gains import Gains
from workers.evaluation.scores import table
from workers.leagues.local import LocalLeague

pytestmark = pytest.mark.usefixtures("one_thread")

BUDGET = 16_000
KUHN: dict[str, Any] = {
    "env": "openspiel:kuhn_poker",
    "players": {
        "main": {"kind": "self_play", "config": {"snapshot_every": None}, "updates": 0.01},
        "response": {"kind": "best_response", "config": {"opponent": "main@0", "budget": BUDGET}},
    },
    "network": {"name": "mlp", "hidden_sizes": [16]},
    "algorithm": {
        "name": "ppo", "learning_rate": 0.01, "epochs": 4, "minibatch_size": 512, "gamma": 1.0,
        "entropy_coefficient": 0.005, "normalize_advantage": False,
    },
    "games": 64, "tables": 2, "unroll_length": 4, "lanes": 64, "match_games": 32, "reward_scale": 0.5,
    "period_steps": 2_000, "evaluation_games": 256, "cell_least": 64, "cell_error": 0.08,
}  # fmt: skip
FORM = exploitability.load("openspiel:kuhn_poker")


def plays_always(action: int, policy: Policy) -> None:
    """Let a policy pass or fold (0), or bet or call (1), at every decision."""
    with torch.no_grad():
        *_, last = [
            layer for layer in policy.modules() if isinstance(layer, torch.nn.Linear) and layer.out_features == 2
        ]
        last.weight.zero_()
        last.bias.copy_(torch.tensor([30.0, -30.0] if action == 0 else [-30.0, 30.0]))


def exact_return(mine: Policy, theirs: list[Policy], shares: np.ndarray) -> float:
    """Return what `mine` gains a game, over both seats, from policies that are played by `shares` (2, K)."""
    both = [FORM.plans(table(FORM, mine)), *(FORM.plans(table(FORM, policy)) for policy in theirs)]
    gains = [
        shares[1 - seat, place]
        * (FORM.payoff(both[0][0], plans[1]) if seat == 0 else -FORM.payoff(plans[0], both[0][1]))
        for place, plans in enumerate(both[1:])
        for seat in (0, 1)
    ]
    return float(sum(gains)) / 2.0


def response_of(league: LocalLeague) -> str:
    """Let a league learn until a response is frozen; return the response's name."""
    while not (names := [name for name in league.frozen if name.startswith("response@")]):
        league.learn(league.trainees["response"])
    return names[-1]


def measured(league: LocalLeague) -> Gain:
    """Measure until the gain is known as well as the league's settings ask for; return it."""
    while league.gains.step(league.league.state):
        pass
    return league.gains.of(league.league.state)["response"]


@pytest.mark.parametrize("evaluation", ["games", "pairs", "exact"])
def test_the_gain_is_that_of_the_frozen_response_from_its_target(evaluation: str) -> None:
    league = LocalLeague(LeagueConfig.from_dict({**KUHN, "evaluation": evaluation}))
    assert league.gains.of(league.league.state) == {}, "no response is frozen yet"
    plays_always(1, league.frozen["main@0"])
    # Who folds a jack and calls with the others wins 2, 0 or -1 with equal chances, in either seat.
    assert exploitability.of(FORM, table(FORM, league.frozen["main@0"])) == pytest.approx(1 / 3, abs=1e-9)
    name = response_of(league)
    exact = exact_return(league.frozen[name], [league.frozen["main@0"]], np.ones((2, 1)))
    assert 0.28 < exact <= 1 / 3
    gain = measured(league)
    assert (gain.response, gain.target) == (name, "main@0")
    assert gain.lower <= exact + 1e-9 and exact - 1e-9 <= gain.upper
    if evaluation == "exact":
        assert gain.games == 0 and gain.mean == pytest.approx(exact)
    else:
        assert 0 < gain.games < 100_000 and gain.upper - gain.lower <= 2 * 0.08


@pytest.mark.parametrize("evaluation", ["games", "exact"])
def test_the_gain_from_a_mixture_is_weighted_by_its_shares(evaluation: str) -> None:
    other = {"kind": "self_play", "config": {"snapshot_every": None}, "updates": 0.01}
    response = {"kind": "best_response", "config": {"solver": "uniform", "budget": BUDGET}}
    players = {"main": KUHN["players"]["main"], "other": other, "response": response}
    league = LocalLeague(LeagueConfig.from_dict({**KUHN, "evaluation": evaluation, "players": players}))
    plays_always(1, league.frozen["main@0"])
    plays_always(0, league.frozen["other@0"])
    name = response_of(league)
    members = [league.frozen["main@0"], league.frozen["other@0"]]
    alone = [exact_return(league.frozen[name], [member], np.ones((2, 1))) for member in members]
    gain = measured(league)
    assert gain.target == "the mixture of 2 players", "the response itself is not in it"
    assert gain.lower - 1e-9 <= sum(alone) / 2 <= gain.upper + 1e-9
    assert abs(alone[0] - alone[1]) > 0.1
    if evaluation == "exact":
        assert gain.mean == pytest.approx(sum(alone) / 2)


def test_a_later_response_is_measured_anew_and_a_known_gain_is_not() -> None:
    config = LeagueConfig.from_dict({**KUHN, "evaluation": "pairs"})
    league = LocalLeague(config)
    response_of(league)
    first = measured(league)
    before = {"response": asdict(first)}
    again = Gains(league.evaluator, config.cell_error, config.cell_most, before)
    assert not again.step(league.league.state) and again.of(league.league.state) == {"response": first}
    wider = Gains(league.evaluator, config.cell_error, config.cell_most, {"response": {**asdict(first), "upper": 1.0}})
    assert wider.step(league.league.state), "its interval was too wide when the evaluator ended"
    second = league.league.snapshot("response", league.trainees["response"].version + 1).name
    league.frozen[second] = league.trainees["response"].policy.frozen_copy()
    gain = league.gains.of(league.league.state)["response"]
    assert gain.response == second and gain.games == 2 * 256, "one batch at least, even if nobody steps"


def test_a_league_measures_gains_in_its_evaluators_time() -> None:
    league = LocalLeague(LeagueConfig.from_dict({**KUHN, "evaluation": "pairs"}))
    response_of(league)
    league.evaluate(60.0)  # all is known before
    assert not league.gains.step(league.league.state)


def test_a_response_whose_model_is_missing_is_passed_over() -> None:
    league = LocalLeague(LeagueConfig.from_dict({**KUHN, "evaluation": "pairs"}))
    name = response_of(league)
    gone = league.frozen.pop(name)

    def fails(slot: int) -> Policy:
        raise PoolError("it is gone")

    load, league.evaluator.policy_of._policy_of = league.evaluator.policy_of._policy_of, fails
    assert league.gains.of(league.league.state) == {} and not league.gains.step(league.league.state)
    league.frozen[name], league.evaluator.policy_of._policy_of = gone, load
    league.evaluator.policy_of._until.clear()
    assert league.gains.step(league.league.state)
