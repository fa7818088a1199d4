"""Connect Four: what self-play has learned, tested on players that it never met: connect_four_players.py.

The trained player is the league's main agent (experiment=connect_four), a network that does not search. It begins half
of the games, and plays its likeliest move.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import train
from benchmarks.learning.connect_four_players import ROLLOUTS, Player, chance, one_ply, score, tree_search
from workers.evaluation.duplicate_deals import Side
from workers.runtime.trained import Trained, load

GOALS = {"random": 0.95, "one_ply": 0.85}  # shares of all games to win; a draw counts as half
LEAGUE_GOAL = {"one_ply": 0.95}  # for a league's main agent
MCTS = f"mcts_{ROLLOUTS}"
GAMES = {"random": 500, "one_ply": 1000, MCTS: 200}  # with 1,000 games a share near 0.95 has a standard error of 0.007
SLOTS = 50  # games at once
MINUTES = 60.0  # most minutes of a run; it is limited by decisions, and two busy cores take their time


def opponents(seed: int) -> dict[str, Player]:
    """Return the opponents by the names that the figures have."""
    return {"random": chance, "one_ply": one_ply, MCTS: tree_search(ROLLOUTS, seed)}


def shares(trained: Trained, seed: int) -> dict[str, float]:
    """Return the trained player's share of the games against each opponent; `_drawn`: moves drawn as in training."""
    games, side = trained.games(SLOTS, seed), Side([trained.policy], np.ones((2, 1)), greedy=True)
    found = {name: round(score(games, side, each, GAMES[name], seed), 3) for name, each in opponents(seed).items()}
    return {**found, "one_ply_drawn": round(score(games, Side.of(trained.policy), one_ply, GAMES["one_ply"], seed), 3)}


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train and play, seed by seed; the last line's `solved` counts the seeds that reach both goals.

    `options.run`: play with that run's player, and train nothing.
    """
    runs: list[dict[str, Any]] = []
    for seed in range(1, 2 if options.run else options.seeds + 1):
        run, outcome = options.run, None
        if run is None:
            trial = f"connect-four-{seed}"
            run = folder / "learning" / trial
            outcome, _ = train(folder, trial, ["experiment=connect_four", f"seed={seed}"], servers, 60 * MINUTES)
        runs.append({"outcome": outcome, **shares(load(run), seed)})
        print(f"seed {seed}: {runs[-1]}", flush=True)

    def solved(goals: dict[str, float]) -> int:
        return sum(all(run[name] >= goal for name, goal in goals.items()) for run in runs)

    medians = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0] if name != "outcome"}
    finish(
        "learning connect-four",
        {
            "solved": solved(GOALS), "seeds": len(runs), "steps_vs_peer": None, "goals": GOALS,
            "league_goal": LEAGUE_GOAL, "league_goal_reached": solved(LEAGUE_GOAL), "median_share": medians,
            "games": GAMES, "runs": runs,
        },
    )  # fmt: skip
