"""Games until the cells between some frozen players are known: played in each seat alone, or by pairs on one deal.

A cell is known once its interval, an evaluator's confidence sequence, extends at most a given error to either side. Two
different players have two cells, of one seat each, if seats are played separately. Pairs need one interval for both, of
the mean over the seats; so the games that this mean takes without pairs, in each seat in turn, are counted too. Players
are networks with fresh weights, or snapshots of the main agent of a league that learned in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch

import envs
from agents import build_policy
from agents.policies import Policy
from benchmarks.league.sides import LEAGUE, settings
from league.empirical_game.returns import Returns
from workers.config.league import LeagueConfig
from workers.evaluation.cell_games import play, play_pairs
from workers.leagues.local import LocalLeague

SLOTS = 256  # games at a time
SEPARATE, IN_TURN, TOGETHER = "each seat", "seats in turn", "pairs"


def measure(
    games: Sequence[str], seeds: int, players: int, decisions: int, error: float, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Return the games of pairs as shares of those of each other way, by game and kind of players, one per seed.

    `decisions`: after which snapshots are taken; `error`: share of the game's largest return.
    """
    figures: dict[str, Any] = {"players": players, "error": error, "decisions": decisions}
    for game in games:
        for kind, made in (("untrained", untrained), ("snapshots", snapshots)):
            shares: dict[str, list[float]] = {SEPARATE: [], IN_TURN: []}
            for seed in range(1, seeds + 1):
                config = settings(game, seed, LEAGUE)
                found = counted(config, made(config, players, decisions), error, seed)
                for way, held in shares.items():
                    held.append(round(found[TOGETHER] / found[way], 3))
                say(f"{game}, {kind}, seed {seed}: games {found}")
            figures |= {f"{game}_{kind}_of_{way.replace(' ', '_')}": held for way, held in shares.items()}
    return figures


def counted(config: LeagueConfig, policies: Sequence[Policy], error: float, seed: int) -> dict[str, int]:
    """Return way -> games until the cells of all `policies` are known; `error`: share of the largest return."""
    games = envs.make_two_player(config.env, SLOTS, seed, **config.env_kwargs)
    bound, generator = games.max_return or 1.0, torch.Generator().manual_seed(seed)

    def in_turn(first: Policy, second: Policy) -> np.ndarray:
        return np.concatenate([play(games, first, second, 1, generator), -play(games, second, first, 1, generator)])

    ways = {
        SEPARATE: (permutations, lambda *both: play(games, *both, 1, generator), 1),
        IN_TURN: (combinations, in_turn, 1),
        TOGETHER: (combinations, lambda *both: play_pairs(games, *both, 1, generator), 2),
    }
    found = {}
    for way, (chosen, played, games_each) in ways.items():
        returns = Returns()
        for first, second in chosen(range(len(policies)), 2):
            while not known(returns, first, second, bound, 1.0 - config.cell_confidence, error * bound):
                returns.record(first, second, played(policies[first], policies[second]))
        found[way] = games_each * int(returns.total_games)
    return found


def known(returns: Returns, first: int, second: int, bound: float, alpha: float, error: float) -> bool:
    """Return True once the interval of a cell extends at most `error` to either side of its middle."""
    lower, upper = returns.interval(np.array([first, second]), bound, alpha)
    return bool((upper - lower)[0, 1] <= 2.0 * error)


def untrained(config: LeagueConfig, players: int, decisions: int) -> list[Policy]:
    """Return `players` policies with fresh weights; `decisions` is not used."""
    games = envs.make_two_player(config.env, 1, config.seed, **config.env_kwargs)
    spaces = games.single_observation_space, games.single_action_space
    return [build_policy(config.network, *spaces, 1000 * config.seed + number) for number in range(players)]


def snapshots(config: LeagueConfig, players: int, decisions: int) -> list[Policy]:
    """Return `players` snapshots of a league's main agent, the last after `decisions` of all players."""
    league = LocalLeague(replace(config, evaluation_share=0.0, earned_share=0.0))
    while (made := sum(trainee.steps for trainee in league.trainees.values())) < decisions:
        league.progress = made / decisions
        league.round(1)
    slots = league.league.state.roster.snapshots_of("main")
    whole = [slot for slot in slots.tolist() if not league.league.state.roster.by_slot[slot].is_average]
    if len(whole) < players:
        raise SystemExit(
            f"error: --decisions: {decisions:,} decisions give {len(whole)} snapshots for {players} players; give more"
        )
    chosen = np.linspace(0, len(whole) - 1, players).round().astype(int)
    return [league.policy_of(whole[place]) for place in chosen.tolist()]
