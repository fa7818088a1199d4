"""Agents that learn together: IPPO, MAPPO, VDN and QMIX on two multi-particle games, some seeds in turn.

A run's figure is the mean return of the training games in its last tenth, as they were played: with drawn actions of
PPO's policies, and with one random action in twenty of VDN's and QMIX's. Players that do not learn show what the
figures mean: one plays at random, the others know the game's physics. In simple_spread each agent goes to a landmark of
its own; in simple_speaker_listener the listener goes to the landmark that the speaker names, or to the middle of all.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import envs
from benchmarks.apparatus.curves import Curve, draw
from benchmarks.apparatus.points import Points
from benchmarks.apparatus.report import finish
from benchmarks.apparatus.seeds import train
from benchmarks.learning.mann_whitney import p_value

DOCS = Path(__file__).resolve().parents[2] / "docs"
LENGTH = 25  # steps of a game
MINUTES = 60.0
GAMES = 1_000  # games of each player that does not learn
FORCES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])  # directions of the actions' forces
KEPT, PUSH, COASTING = 0.75, 0.5, 0.4  # share of a velocity kept per step; a force's velocity; s that an agent rolls on

Player = Callable[[np.ndarray, np.random.Generator], np.ndarray]


class Side(NamedTuple):
    """Settings of a run and its length in steps of agents."""

    steps: int
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Game:
    """One game: its environment, the sides that learn it, and players that do not learn."""

    env: str
    sides: Mapping[str, Side]
    players: Mapping[str, Player]


def measure(folder: Path, servers: dict[str, str], options: argparse.Namespace) -> None:
    """Train each side `options.seeds` times; keep and draw the curves like a comparison with a peer."""
    game, name = GAMES_BY_NAME[options.name], f"learning_{options.name}"
    points = Points(DOCS / "curves" if options.keep else options.folder, name)
    curves: dict[str, list[Curve]] = {side: [] for side in game.sides}
    for seed, (side, (steps, own)) in itertools.product(range(1, options.seeds + 1), game.sides.items()):
        settings = [*own, "env.goal=null", f"total_steps={steps}"]
        key = {"side": side, "settings": settings, "seed": seed}
        if (curve := points.get(**key)) is None:
            names = (f"{side}-{seed}-{attempt}" for attempt in itertools.count(1))
            trial = next(name for name in names if not (folder / "learning" / name).exists())
            _, whole = train(folder, trial, [*settings, f"seed={seed}"], servers, 60 * MINUTES)
            curve = points.add(by_parts(whole, steps), **key)
        curves[side].append(curve)
        print(f"seed {seed}: {side}: {curve[-1][1]:g}", flush=True)
    if options.seeds > 2 and not options.no_picture:
        picture = options.picture or DOCS / f"images/{name.replace('-', '_')}.png"
        draw(
            picture, game.env.partition(":")[2], curves, None, "mean return of a tenth of the games", "steps of agents"
        )
    finish(f"learning {options.name}", figures(game, curves))


def by_parts(curve: Curve, steps: int, parts: int = 10) -> Curve:
    """Return (steps at its end, mean return) of each of `parts` equal parts of a run, if it has points."""
    part = [min(parts, -(-at * parts // steps)) for at, _ in curve]
    found = {number: [mean for here, (_, mean) in zip(part, curve, strict=True) if here == number] for number in part}
    return [(number * steps // parts, round(float(np.mean(found[number])), 3)) for number in sorted(found)]


def figures(game: Game, curves: dict[str, list[Curve]]) -> dict[str, Any]:
    """Return the figures of the last line: each side's means of its runs, their mean, and half its 95 % interval."""
    last = {side: [curve[-1][1] for curve in runs] for side, runs in curves.items()}
    first = {side: round(float(np.mean([curve[0][1] for curve in runs])), 2) for side, runs in curves.items()}
    return {
        "steps": {name: side.steps for name, side in game.sides.items()},
        "mean_return": {side: round(float(np.mean(runs)), 2) for side, runs in last.items()},
        "interval": {side: half_interval(runs) for side, runs in last.items()},
        "in_the_first_tenth": first,
        "p_beside_IPPO": {side: round(p_value(runs, last["IPPO"]), 3) for side, runs in last.items() if side != "IPPO"},
        "not_learned": {name: round(returns(game.env, player), 2) for name, player in game.players.items()},
        "runs": last,
    }


def half_interval(runs: list[float]) -> float | None:
    """Return half of the 95 % interval of a mean, by Student's t; None for fewer than two runs."""
    if len(runs) < 2:
        return None
    return round(float(stats.t.ppf(0.975, len(runs) - 1) * stats.sem(runs)), 2)


def returns(env: str, player: Player) -> float:
    """Return the mean over GAMES games of the mean return of the agents of `player`."""
    games = envs.make_vector(env, GAMES, 10_000)
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

    `observation` [games * 3, 18]: an agent's velocity and place, then the landmarks and the others relative to it.
    """
    each = observation.reshape(-1, 3, observation.shape[-1])
    velocity, offsets = each[..., :2], each[..., 4:10].reshape(-1, 3, 3, 2)
    distance = np.linalg.norm(offsets, axis=-1)  # [games, agents, landmarks]
    ways = np.array(list(itertools.permutations(range(3))))
    agent = np.arange(3)
    way = ways[np.stack([distance[:, agent, order].sum(-1) for order in ways], -1).argmin(-1)]
    return towards(np.take_along_axis(offsets, way[..., None, None], 2)[..., 0, :], velocity).ravel()


def informed(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the goal's number for each speaker, and an action towards the landmark that was named for each listener.

    `observation` [games * 2, 11]: a speaker's is the goal's colour; a listener's its velocity, the landmarks relative
    to it and the symbol that it heard, which is none in the first step.
    """
    speaker, listener = observation[0::2], observation[1::2]
    named = listener[:, 8:11].argmax(-1)
    landmarks = listener[:, 2:8].reshape(-1, 3, 2)
    action = towards(landmarks[np.arange(len(named)), named], listener[:, :2])
    return np.stack([speaker[:, :3].argmax(-1), np.where(listener[:, 8:11].any(-1), action, 0)], -1).ravel()


def to_the_middle(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the same word for each speaker, and for each listener an action towards the middle of all landmarks.

    Observations are as for `informed`.
    """
    listener = observation[1::2]
    action = towards(listener[:, 2:8].reshape(-1, 3, 2).mean(1), listener[:, :2])
    return np.stack([np.zeros_like(action), action], -1).ravel()


def towards(offset: np.ndarray, velocity: np.ndarray) -> np.ndarray:
    """Return the action after which an agent comes to rest nearest to `offset`; offset and velocity [..., 2]."""
    rolled = COASTING * (KEPT * velocity[..., None, :] + PUSH * FORCES)  # [..., actions, 2]
    nearest: np.ndarray = np.linalg.norm(offset[..., None, :] - rolled, axis=-1).argmin(-1)
    return nearest


SPREAD, SPEAKER = "experiment=simple_spread", "experiment=simple_speaker_listener"
EXPLORE = "algorithm.explore_steps=100000"  # over a tenth of the experiment's steps
GAMES_BY_NAME = {
    "simple-spread": Game(
        "mpe:simple_spread",
        {
            "IPPO": Side(300_000, (SPREAD,)),
            "MAPPO": Side(300_000, (f"{SPREAD}_mappo",)),
            "VDN": Side(300_000, (f"{SPREAD}_vdn", EXPLORE)),
            "QMIX": Side(300_000, (f"{SPREAD}_qmix", EXPLORE)),
        },
        {"at random": at_random, "assigned": assigned},
    ),
    "simple-speaker-listener": Game(
        "mpe:simple_speaker_listener",
        {
            "IPPO": Side(3_000_000, (SPEAKER,)),
            "MAPPO": Side(3_000_000, (f"{SPEAKER}_mappo",)),
            "QMIX": Side(2_000_000, (f"{SPEAKER}_qmix",)),
        },
        {"to the middle": to_the_middle, "informed": informed},
    ),
}
