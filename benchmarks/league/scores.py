"""Seconds in which an evaluator scores a large league: the mixture, its exploitability, and the bounds of gains.

The players are networks with fresh weights; their returns against each other are drawn around the exact ones. The first
score tabulates every member of the mixture; each later one, after one more player was frozen, only the new player. An
evaluator that computes cells is stepped before each score until it has no more to do: if the mixture has to withstand
best responses, it tabulates the new players and searches for that mixture.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import envs
from agents import build_policy
from benchmarks.league.sides import LEAGUE, settings
from envs import exploitability
from league.empirical_game.returns import Returns
from league.matchmaking.view import ModelRef
from workers.evaluation.by_settings import evaluator_of
from workers.evaluation.exact_cells import ExactEvaluator
from workers.evaluation.scores import Scores, table

GAMES = 4096  # games of each cell


def measure(game: str, players: int, rounds: int = 5) -> dict[str, Any]:
    """Return the seconds of a first score of `players` frozen players, and the median of `rounds` later ones."""
    config = replace(settings(game, 1, LEAGUE), references=())
    form = exploitability.load(config.env, **config.env_kwargs)
    games = envs.make_two_player(config.env, 2, 1, **config.env_kwargs)
    spaces = games.single_observation_space, games.single_action_space
    policies = [build_policy(config.network, *spaces, seed) for seed in range(players + rounds)]
    plans = [form.plans(table(form, policy)) for policy in policies]
    returns, drawn = Returns(), np.random.default_rng(1)
    bound = games.max_return or 1.0
    for first, (mine, _) in enumerate(plans):
        for second, (_, theirs) in enumerate(plans):
            mean = form.payoff(mine, theirs) + drawn.normal(0.0, bound / 4 / np.sqrt(GAMES))
            returns.add(first, second, GAMES, GAMES * mean, GAMES * (mean**2 + (bound / 4) ** 2))
    evaluator = evaluator_of(config, games, returns, policies.__getitem__, 1)
    spent: dict[str, list[float]] = {"search": [], "mixture": [], "exploitability": [], "gain": []}
    members = []
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as folder:
        scores = Scores(config, Path(folder), 1)
        for count in range(players, players + rounds + 1):
            slots = np.arange(count)
            moments = [time.perf_counter()]
            while isinstance(evaluator, ExactEvaluator) and evaluator.step(slots):  # others would play games
                pass
            moments.append(time.perf_counter())
            shares = evaluator.mixture(slots)
            moments.append(time.perf_counter())
            models = [ModelRef("main", slot) for slot in range(count)]
            scores.of_mixture(models, lambda model: policies[model.version], shares)
            moments.append(time.perf_counter())
            evaluator.gain_within(slots, shares)
            moments.append(time.perf_counter())
            members.append(int((shares.max(axis=0) > 0.0).sum()))
            for name, seconds in zip(spent, np.diff(moments), strict=True):
                spent[name].append(float(seconds))
    first_score, *later = [sum(parts) for parts in zip(*spent.values(), strict=True)]
    return {
        "players": players,
        "in_mixture": statistics.median(members),
        "first_score_s": round(first_score, 3),
        "score_s": round(statistics.median(later), 3),
        **{f"{name}_s": round(statistics.median(each[1:]), 3) for name, each in spent.items()},
    }
