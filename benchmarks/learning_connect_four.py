"""Connect Four: what self-play has learned, against a random player and one that looks one move ahead.

The league's own run (experiment=connect_four) never meets these two. The learned player draws its moves as in training;
half of the games begin with it, half with the other.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel

from benchmarks.learning_jobs import train
from benchmarks.report import finish
from workers.runtime.trained import Trained, load

GOALS = {"random": 0.95, "one_ply": 0.85}  # shares of all games that are to be won; a draw counts as half
GAMES = 500  # of each
MINUTES = 20.0

Scripted = Callable[[Any, np.random.Generator], int]  # of an OpenSpiel state, the action of the player to move


def random_player(state: Any, generator: np.random.Generator) -> int:
    return int(generator.choice(state.legal_actions()))


def one_ply(state: Any, generator: np.random.Generator) -> int:
    """Looks one move ahead: it wins where it can, and else plays at random."""
    for action in state.legal_actions():
        child = state.child(action)
        if child.is_terminal() and child.returns()[state.current_player()] > 0:
            return int(action)
    return random_player(state, generator)


PLAYERS: dict[str, Scripted] = {"random": random_player, "one_ply": one_ply}


def score(trained: Trained, opponent: Scripted, number: int, seed: int) -> float:
    """The learned player's share of `number` games; a draw is half of one. Raises IllegalAction for an illegal move."""
    slots = min(50, number)
    games, rules = trained.games(slots, seed), pyspiel.load_game("connect_four")
    generator, mine = np.random.default_rng(seed), np.arange(slots) % 2  # the seat that is learned, by game slot
    turn, won = games.reset(), []
    while len(won) < number:
        learned = turn.to_move == mine
        action = np.zeros(slots, np.int64)
        rows = np.flatnonzero(learned)
        if rows.size:
            action[rows] = trained.policy.step(turn.observation[rows], action_mask=turn.action_mask[rows]).action
        for row in np.flatnonzero(~learned):
            state = rules.new_initial_state()
            for move in games.history(int(row)):  # type: ignore[attr-defined]
                state.apply_action(move)
            action[row] = opponent(state, generator)
        turn = games.step(action)
        ended = games.pop_finished()
        won += [(ended.returns[k, mine[i]] + 1) / 2 for k, i in enumerate(ended.index)]
    return float(np.mean(won[:number]))


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train and play, seed by seed; the last line's `solved` counts seeds that reach both goals."""
    shares: dict[str, list[float]] = {name: [] for name in PLAYERS}
    runs = []
    for seed in range(1, options.seeds + 1):
        trial = f"connect-four-{seed}"
        outcome, _ = train(folder, trial, ["experiment=connect_four", f"seed={seed}"], servers, 60 * MINUTES)
        trained = load(folder / "learning" / trial)
        for name, opponent in PLAYERS.items():
            shares[name].append(score(trained, opponent, GAMES, seed))
        runs.append({"outcome": outcome, **{name: shares[name][-1] for name in PLAYERS}})
        print(f"seed {seed}: {runs[-1]}", flush=True)
    solved = sum(all(run[name] >= goal for name, goal in GOALS.items()) for run in runs)
    medians = {name: round(statistics.median(each), 3) for name, each in shares.items()}
    finish(
        "learning connect-four",
        {
            "solved": solved, "seeds": options.seeds, "steps_vs_peer": None, "goals": GOALS, "median_share": medians,
            "games": GAMES, "runs": runs,
        },
    )  # fmt: skip
