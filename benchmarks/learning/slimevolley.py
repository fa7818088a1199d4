"""Slime volleyball: what a league has learned, tested on slimevolleygym's built-in player, which it never met.

Each frozen `main@UPDATES` of the run (experiment=slimevolley) plays whole games against the built-in player, a network
trained by the game's author; a game's return is lives won minus lives lost, from -5 to 5.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from slimevolleygym import SlimeVolleyEnv

import envs
from agents.policies import Policy
from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.report import finish
from benchmarks.learning.frozen_players import PLAYER, frozen, run_of
from workers.runtime.trained import load

BUILT_IN = "gym:slimevolleygym:SlimeVolley-v0"
GAMES = 60  # games of each frozen player
MINUTES = 30.0


def against_built_in(policy: Policy, games: int, seed: int) -> np.ndarray:
    """Play `games` games; return their returns, float [games]; actions are drawn as in training."""
    court = envs.make_vector(BUILT_IN, games, seed)
    returns, over = np.zeros(games), np.zeros(games, bool)
    policy.generator.manual_seed(seed)
    observation, _ = court.reset()
    while not over.all():
        action = policy.step(observation.astype(np.float32), value=False).action
        presses = np.array(SlimeVolleyEnv.action_table)[action]
        observation, reward, terminated, truncated, _ = court.step(presses)
        returns += np.where(over, 0.0, reward)
        over |= terminated | truncated
    court.close()
    return returns


def curve(run: Path, games: int = GAMES, seed: int = 10_000) -> list[dict[str, Any]]:
    """Return for each frozen player of the main agent, in order: steps, mean return, its standard error, share won."""
    points = []
    for version, decisions in frozen(run).items():
        returns = against_built_in(load(run, f"{PLAYER}@{version}").policy, games, seed)
        points.append(
            {
                "steps": decisions, "mean_return": round(float(returns.mean()), 3),
                "error": round(float(returns.std(ddof=1) / np.sqrt(games)), 3),
                "won": round(float((returns > 0).mean()), 3),
            }
        )  # fmt: skip
        print(points[-1], flush=True)
    return points


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train, play and draw; with `options.run` play with that run's players, and train nothing."""
    run, outcome = run_of("slimevolley", folder, servers, options, MINUTES)
    points = curve(run)
    if options.picture is not None:
        line: Curve = [(point["steps"], point["mean_return"]) for point in points]
        title = "Slime volleyball, a league's main agent against the built-in player"
        draw(options.picture, title, {"main agent": [line]}, None, f"mean return of {GAMES} games", "decisions")
    finish(
        "learning slimevolley",
        {"first": points[0], "last": points[-1], "best": max(points, key=lambda p: p["mean_return"]),
         "games": GAMES, "points": points, "outcome": outcome},
    )  # fmt: skip
