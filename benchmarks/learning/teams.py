"""Agents that learn together: IPPO, MAPPO, VDN and QMIX on the multi-particle game simple_spread, some seeds in turn.

Each side trains for STEPS steps of agents. A run's figure is the mean return of the training games in its last tenth,
as they were played: with drawn actions of PPO's policies, and with one random action in twenty of VDN's and QMIX's. Two
players that do not learn show what the figures mean: one plays at random, and one knows the game's physics and sends
each agent to a landmark of its own.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import envs
from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.points import Points
from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import train
from benchmarks.learning.mann_whitney import p_value

DOCS = Path(__file__).resolve().parents[2] / "docs"
GAME, AGENTS, LENGTH = "mpe:simple_spread", 3, 25
STEPS = 300_000  # agents' steps: 4,000 games
MINUTES = 30.0
SIDES = {
    "IPPO": ("experiment=simple_spread",),
    "MAPPO": ("experiment=simple_spread_mappo",),
    "VDN": ("experiment=simple_spread_vdn", "algorithm.explore_steps=100000"),  # over a tenth of the experiment's steps
    "QMIX": ("experiment=simple_spread_qmix", "algorithm.explore_steps=100000"),
}
GAMES = 1_000  # games of each player that does not learn
FORCES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])  # directions of the actions' forces
KEPT, PUSH, COASTING = 0.75, 0.5, 0.4  # share of a velocity kept per step; a force's velocity; s that an agent rolls on


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train each side `options.seeds` times; keep and draw the curves like a comparison with a peer."""
    points = Points(DOCS / "curves" if options.keep else options.folder, "learning_simple-spread")
    curves: dict[str, list[Curve]] = {side: [] for side in SIDES}
    for seed, (side, own) in itertools.product(range(1, options.seeds + 1), SIDES.items()):
        settings = [*own, "env.goal=null", f"total_steps={STEPS}"]
        key = {"side": side, "settings": settings, "seed": seed}
        if (curve := points.get(**key)) is None:
            names = (f"{side}-{seed}-{attempt}" for attempt in itertools.count(1))
            trial = next(name for name in names if not (folder / "learning" / name).exists())
            _, whole = train(folder, trial, [*settings, f"seed={seed}"], servers, 60 * MINUTES)
            curve = points.add(by_parts(whole, STEPS), **key)
        curves[side].append(curve)
        print(f"seed {seed}: {side}: {curve[-1][1]:g}", flush=True)
    if options.seeds > 2 and not options.no_picture:
        picture = options.picture or DOCS / "images/learning_simple_spread.png"
        draw(picture, "simple_spread, three agents", curves, None, "mean return of a tenth of the games")
    finish("learning simple-spread", figures(curves))


def by_parts(curve: Curve, steps: int, parts: int = 10) -> Curve:
    """Return (steps at its end, mean return) of each of `parts` equal parts of a run, if it has points."""
    part = [min(parts, -(-at * parts // steps)) for at, _ in curve]
    found = {number: [mean for here, (_, mean) in zip(part, curve, strict=True) if here == number] for number in part}
    return [(number * steps // parts, round(float(np.mean(found[number])), 3)) for number in sorted(found)]


def figures(curves: dict[str, list[Curve]]) -> dict[str, Any]:
    """Return the figures of the last line: each side's means of its runs, their mean, and half its 95 % interval."""
    last = {side: [curve[-1][1] for curve in runs] for side, runs in curves.items()}
    first = {side: round(float(np.mean([curve[0][1] for curve in runs])), 2) for side, runs in curves.items()}
    return {
        "steps": STEPS,
        "mean_return": {side: round(float(np.mean(runs)), 2) for side, runs in last.items()},
        "interval": {side: half_interval(runs) for side, runs in last.items()},
        "in_the_first_tenth": first,
        "p_beside_IPPO": {side: round(p_value(runs, last["IPPO"]), 3) for side, runs in last.items() if side != "IPPO"},
        "not_learned": {name: round(returns(player), 2) for name, player in PLAYERS.items()},
        "runs": last,
    }


def half_interval(runs: list[float]) -> float | None:
    """Return half of the 95 % interval of a mean, by Student's t; None for fewer than two runs."""
    if len(runs) < 2:
        return None
    return round(float(stats.t.ppf(0.975, len(runs) - 1) * stats.sem(runs)), 2)


def returns(player: Any) -> float:
    """Return the mean over GAMES games of the mean return of the agents of `player`."""
    games = envs.make_vector(GAME, GAMES, 10_000)
    generator, total = np.random.default_rng(0), 0.0
    observation, _ = games.reset()
    for _ in range(LENGTH):
        observation, reward, *_ = games.step(player(observation, generator))
        total += float(reward.mean())
    games.close()
    return total


def at_random(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a random action for each agent."""
    return generator.integers(len(FORCES), size=len(observation))


def assigned(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return an action for each agent towards its landmark, in the assignment with the smallest sum of distances.

    `observation` [games * AGENTS, 18]: an agent's velocity and place, then the landmarks and the others relative to it.
    """
    each = observation.reshape(-1, AGENTS, observation.shape[-1])
    velocity, offsets = each[..., :2], each[..., 4 : 4 + 2 * AGENTS].reshape(-1, AGENTS, AGENTS, 2)
    distance = np.linalg.norm(offsets, axis=-1)  # [games, agents, landmarks]
    ways = np.array(list(itertools.permutations(range(AGENTS))))
    agent = np.arange(AGENTS)
    way = ways[np.stack([distance[:, agent, order].sum(-1) for order in ways], -1).argmin(-1)]
    wanted = np.take_along_axis(offsets, way[..., None, None], 2)  # [games, agents, 1, 2]
    rolled = COASTING * (KEPT * velocity[..., None, :] + PUSH * FORCES)  # [games, agents, actions, 2]
    return np.linalg.norm(wanted - rolled, axis=-1).argmin(-1).ravel()


PLAYERS = {"at random": at_random, "assigned": assigned}
