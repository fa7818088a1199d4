"""The evaluator that a league's settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.policies import Policy
from envs import TwoPlayerVectorEnv
from league.empirical_game.mixture import EXACT
from league.empirical_game.returns import Returns
from workers.config.league import LeagueConfig
from workers.evaluation.cells import Claims, Evaluator, Recorder
from workers.evaluation.exact_cells import ExactEvaluator


def evaluator_of(
    league: LeagueConfig,
    games: TwoPlayerVectorEnv,
    returns: Returns,
    policy_of: Callable[[int], Policy],
    seed: int,
    claims: Claims | None = None,
    recorder: Recorder | None = None,
) -> Evaluator:
    """Return an evaluator with the settings of a league."""
    bound, alpha = league.max_return or games.max_return, 1.0 - league.cell_confidence
    evaluator: Evaluator
    if league.evaluation == EXACT:
        evaluator = ExactEvaluator(league, games, returns, policy_of, seed, bound=bound, alpha=alpha, claims=claims)
    else:
        evaluator = Evaluator(
            games,
            returns,
            policy_of,
            seed,
            league.evaluation_rounds,
            league.cell_least,
            league.cell_most,
            league.cell_error,
            league.mixture_temperature,
            bound=bound,
            alpha=alpha,
            source=league.evaluation,
            claims=claims,
            recorder=recorder,
        )
    returns.settings = replace(
        returns.settings,
        least_temperature=league.mixture_least_temperature,
        exploiters=league.mixture_exploiters,
        against=league.mixture_against,
    )
    return evaluator
