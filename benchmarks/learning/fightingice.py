"""FightingICE: a league's main agent, tested in rounds against its own first snapshot.

Some of the run's frozen players (experiment=fightingice_league), the last among them, meet the first one, which has not
learned, from both sides of the stage. A round lasts as long as in training and is won by the damage done.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.policies import Policy
from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import train
from envs.fightingice.match import Match, step_together
from league.models.snapshots import MODELS
from workers.config.league import LeagueConfig
from workers.config.schema import from_yaml
from workers.runtime.league_paths import league_of
from workers.runtime.trained import load

PLAYER = "main"
AT_ONCE = 4  # games; in half of them the newer player begins on the left
POINTS, ROUNDS, LAST_ROUNDS = 8, 20, 100  # players of the curve; rounds of each, and of the last one
MINUTES = 90.0
NORMAL = 1.96  # standard errors of a 95 % interval


class Rounds(NamedTuple):
    """Damage of each round, float [rounds], as shares of a player's hit points."""

    done: np.ndarray
    taken: np.ndarray

    def figures(self) -> dict[str, Any]:
        """Return the share of rounds won (a draw counts half), half its 95 % interval, and health won over lost."""
        points = (np.sign(self.done - self.taken) + 1) / 2
        won, lost = float(self.done.mean()), float(self.taken.mean())
        return {
            "won": round(float(points.mean()), 3),
            "interval": round(float(NORMAL * points.std(ddof=1) / np.sqrt(len(points))), 3),
            "health_won": round(won, 4),
            "health_lost": round(lost, 4),
            "ratio": round(won / max(lost, 1e-4), 2),
        }


def meet(newer: Policy, older: Policy, matches: Sequence[Match], rounds: int, seed: int = 10_000) -> Rounds:
    """Play `rounds` rounds, in `matches` at once, each policy on the left in half of them; actions are drawn."""
    newer.generator.manual_seed(seed)
    older.generator.manual_seed(seed + 1)
    players, done, taken = (newer, older), [], []
    while len(done) < rounds:
        seen = np.stack([match.reset() for match in matches])  # [matches, sides, fields]
        left = np.array([(len(done) + i) % 2 for i in range(len(matches))])  # which player is on the left
        damage, over = np.zeros((len(matches), 2)), np.zeros(len(matches), bool)
        while not over.all():
            actions = np.zeros((len(matches), 2), np.int64)  # by side
            for which, player in enumerate(players):
                side = np.where(left == which, 0, 1)
                actions[np.arange(len(matches)), side] = player.step(
                    seen[np.arange(len(matches)), side], value=False
                ).action
            playing = np.flatnonzero(~over)
            steps = step_together([matches[i] for i in playing], actions[playing].tolist())
            for i, step in zip(playing, steps, strict=True):
                seen[i], over[i] = step.observations, step.over
                damage[i] += step.damage
        own = np.where(left == 0, 0, 1)  # the newer player's side
        taken += damage[np.arange(len(matches)), own].tolist()
        done += damage[np.arange(len(matches)), 1 - own].tolist()
    return Rounds(np.array(done[:rounds]), np.array(taken[:rounds]))


def matches_of(league: LeagueConfig, count: int = AT_ONCE) -> list[Match]:
    """Return games like those of a run's training."""
    return [Match(league.env.partition(":")[2], None, **dict(league.env_kwargs)) for _ in range(count)]


def curve(run: Path) -> list[dict[str, Any]]:
    """Return for some of the run's frozen players, in order: decisions, and its figures against the first one."""
    league = league_of(from_yaml(run / "config.yaml"))
    stems = [path.stem for path in (run / "league" / MODELS).glob(f"{PLAYER}@*.safetensors")]
    first, *later = sorted(int(stem.partition("@")[2]) for stem in stems)
    chosen = [later[i] for i in sorted({round(i) for i in np.linspace(0, len(later) - 1, POINTS)})]
    matches, points = matches_of(league), []
    try:
        for version in (first, *chosen):
            policies = (load(run, f"{PLAYER}@{number}").policy for number in (version, first))
            found = meet(*policies, matches, LAST_ROUNDS if version == later[-1] else ROUNDS)
            points.append({"decisions": version * league.lanes * league.unroll_length, **found.figures()})
            print(points[-1], flush=True)
    finally:
        for match in matches:
            match.close()
    return points


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train, play and draw; with `options.run` play with that run's players, and train nothing."""
    run, outcome = options.run, None
    if run is None:
        run = folder / "learning" / "fightingice"
        outcome, _ = train(folder, "fightingice", ["experiment=fightingice_league"], servers, 60 * MINUTES)
    points = curve(run)
    if options.picture is not None:
        line: Curve = [(point["decisions"], point["health_won"] / max(point["health_lost"], 1e-4)) for point in points]
        draw(
            options.picture,
            "FightingICE, against its own first snapshot",
            {"main agent": [line]},
            None,
            "health won / lost",
        )
    finish("learning fightingice", {"last": points[-1], "rounds": LAST_ROUNDS, "points": points, "outcome": outcome})
