"""FightingICE: a league's main agent, tested in rounds against its own first snapshot.

Some of the run's frozen players (experiment=fightingice_league), the last among them, meet the first one, which has not
learned, from both sides of the stage. A round lasts as long as in training; the player that did more damage wins it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

from agents.policies import Policy
from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.report import finish
from benchmarks.learning.frozen_players import PLAYER, frozen, league_in, run_of
from envs.fightingice.match import Match, step_together
from workers.config.league import LeagueConfig
from workers.runtime.trained import load

AT_ONCE = 4  # games; in half of them the newer player begins on the left
POINTS, ROUNDS, LAST_ROUNDS = 8, 20, 100  # players of the curve; rounds of each, and of the last one
MINUTES = 90.0
LEAST_LOST = 1e-4  # health lost, at least, to divide by


class Rounds(NamedTuple):
    """Damage of each round, float [rounds], as shares of a player's hit points."""

    done: np.ndarray
    taken: np.ndarray

    def figures(self) -> dict[str, Any]:
        """Return the share of rounds won, its 95 % interval, and the mean health won and lost, with their ratio.

        A draw is not won. The interval is exact (Clopper & Pearson 1934).
        """
        wins, rounds = int((self.done > self.taken).sum()), len(self.done)
        won, lost = float(self.done.mean()), float(self.taken.mean())
        return {
            "won": round(wins / rounds, 3),
            "interval": [round(float(bound), 3) for bound in binomtest(wins, rounds).proportion_ci()],
            "rounds": rounds,
            "health_won": round(won, 4),
            "health_lost": round(lost, 4),
            "ratio": round(won / max(lost, LEAST_LOST), 2),
        }


def meet(newer: Policy, older: Policy, matches: Sequence[Match], rounds: int, seed: int = 10_000) -> Rounds:
    """Play `rounds` rounds, in `matches` at once, each policy on the left in half of them; actions are drawn."""
    newer.generator.manual_seed(seed)
    older.generator.manual_seed(seed + 1)
    every, done, taken = np.arange(len(matches)), [], []
    while len(done) < rounds:
        seen = np.stack([match.reset() for match in matches])  # [matches, sides, fields]
        side = (len(done) + every) % 2  # the newer player's, 0 on the left
        damage, over = np.zeros((len(matches), 2)), np.zeros(len(matches), bool)
        while not over.all():
            actions = np.zeros((len(matches), 2), np.int64)
            for policy, own in ((newer, side), (older, 1 - side)):
                actions[every, own] = policy.step(seen[every, own], value=False).action
            playing = np.flatnonzero(~over)
            steps = step_together([matches[i] for i in playing], actions[playing].tolist())
            for i, step in zip(playing, steps, strict=True):
                seen[i], over[i] = step.observations, step.over
                damage[i] += step.damage
        taken += damage[every, side].tolist()
        done += damage[every, 1 - side].tolist()
    return Rounds(np.array(done[:rounds]), np.array(taken[:rounds]))


def matches_of(league: LeagueConfig, count: int = AT_ONCE) -> list[Match]:
    """Return games like those of a run's training."""
    return [Match(league.env.partition(":")[2], None, **league.env_kwargs) for _ in range(count)]


def curve(run: Path) -> list[dict[str, Any]]:
    """Return for some of the run's frozen players, in order: decisions, and its figures against the first one."""
    decisions = frozen(run)
    first, *later = decisions
    chosen = [later[i] for i in sorted({round(i) for i in np.linspace(0, len(later) - 1, POINTS)})]
    matches, points = matches_of(league_in(run)), []
    try:
        for version in (first, *chosen):
            policies = (load(run, f"{PLAYER}@{number}").policy for number in (version, first))
            found = meet(*policies, matches, LAST_ROUNDS if version == later[-1] else ROUNDS)
            points.append({"decisions": decisions[version], **found.figures()})
            print(points[-1], flush=True)
    finally:
        for match in matches:
            match.close()
    return points


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train, play and draw; with `options.run` play with that run's players, and train nothing."""
    run, outcome = run_of("fightingice_league", folder, servers, options, MINUTES)
    points = curve(run)
    if options.picture is not None:
        line: Curve = [(point["decisions"], point["ratio"]) for point in points]
        title = "FightingICE, a league's main agent against its first snapshot"
        draw(options.picture, title, {"main agent": [line]}, None, "health won / health lost", "decisions")
    finish("learning fightingice", {"last": points[-1], "points": points, "outcome": outcome})
