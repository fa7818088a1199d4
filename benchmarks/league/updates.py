"""Updates of players of a Leduc league, made together and one after the other: their processor time.

Batches and weights are those of conf/league/leduc.yaml's main agent after some rounds of the league, with its settings
and with those of an exploiter that begins with the main agent's weights. Seconds are the processor's, of one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import envs
from agents import Algorithm, Batch, build_algorithm, build_policy
from agents.algorithms.together import update_together
from benchmarks.league.sides import LEAGUE, settings
from workers.leagues.local import LocalLeague

GAME, MAIN, EXPLOITER = "leduc", "main", "league_exploiter_0"
SIDES = ("separate", "together")
PLAYERS = (2, 4, 16, 64)
COUNTED = 16  # players in the one figure for the league's own batch
SMALL = 32  # trajectories of a small batch; the league's own has `lanes`


def measure(players: Sequence[int], rounds: int, learned: int) -> dict[str, Any]:
    """Return ms a player of both ways and their ratios, medians of `rounds`, by settings, batch and number of players.

    `learned`: rounds of the league before. With COUNTED players new weights are measured as well.
    """
    league = league_after(learned)
    main = league.trainees[MAIN]
    trajectory = main.matches.collect(league.config.lanes)
    figures: dict[str, Any] = {"rounds": rounds, "learned": learned}
    counted = COUNTED if COUNTED in players else max(players)
    for name in (MAIN, EXPLOITER):
        for size, lanes in (("batch", league.config.lanes), ("small", SMALL)):
            batch = Batch([trajectory.slots(np.arange(lanes))])
            for number in players:
                for kind, weights in (("", main.policy.state_dict()), ("_new", None)):
                    if kind and number != counted:
                        continue
                    found = _measured([players_of(league, name, number, weights) for _ in SIDES], batch, rounds)
                    figures |= {f"{name}_{size}_{number}{kind}_{key}": value for key, value in found.items()}
                    print(f"{name}, {size}, {number} players{kind}: {found}", flush=True)
    of_settings = [figures[f"{name}_batch_{counted}_ratio"] for name in (MAIN, EXPLOITER)]
    return figures | {"batched_update_ratio": max(of_settings)}


def league_after(rounds: int) -> LocalLeague:
    """Return the league of Leduc poker after `rounds` rounds."""
    league = LocalLeague(settings(GAME, 1, LEAGUE))
    for number in range(rounds):
        league.progress = number / rounds
        league.round()
    return league


def _measured(players: Sequence[list[Algorithm]], batch: Batch, rounds: int) -> dict[str, float]:
    """Return ms of a core per player of each of SIDES, with players of its own, and their ratio."""
    apart, together = players
    batches = [batch] * len(apart)
    updates: tuple[Callable[[], Any], ...] = (
        lambda: [player.update(batch) for player in apart],
        lambda: update_together(together, batches),
    )
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(rounds + 1):
        for side, update in zip(SIDES, updates, strict=True):
            started = time.process_time()
            update()
            if number:  # the first round warms up
                seconds[side].append((time.process_time() - started) / len(apart))
    ratios = [one / other for one, other in zip(seconds["together"], seconds["separate"], strict=True)]
    found = {f"{side}_ms": round(1e3 * statistics.median(times), 3) for side, times in seconds.items()}
    return found | {"ratio": round(statistics.median(ratios), 3)}


def players_of(
    league: LocalLeague, name: str, number: int, weights: dict[str, Any] | None, device: torch.device | None = None
) -> list[Algorithm]:
    """Return `number` players with the settings of the one called `name`.

    `weights`: the weights of each; None: new ones. `device` None: the CPU.
    """
    config = league.config
    games = envs.make_two_player(config.env, 2, 1, **config.env_kwargs)
    given, players = config.algorithm_of(name), []
    for seed in range(number):
        policy = build_policy(config.network_of(name), games.single_observation_space, games.single_action_space, seed)
        if weights is not None:
            policy.load_state_dict(weights)
        players.append(build_algorithm(given["name"], given, policy.to(device or "cpu"), seed, replay=False))
    return players
