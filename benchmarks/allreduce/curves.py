"""CartPole by PPO: curves of one rank, of two at the same total batch, and of two that compress, by the same seeds.

The batch, its minibatches and the learning rate are those of all ranks together, so that two ranks make the updates
that one would make. Each curve is kept as soon as it is made: if there is no time for all, the same command goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.allreduce.processes import RankProcesses
from benchmarks.allreduce.ranks import ENVIRONMENT, ENVIRONMENTS, SETTINGS, TOP_K, UNROLL_LENGTH
from benchmarks.apparatus.curves import draw
from benchmarks.apparatus.points import Points, TimeLeft

GOAL = 475  # return of CartPole-v1
SIDES = {  # name -> ranks, compression
    "one rank": (1, "none"),
    "two ranks": (2, "none"),
    "two ranks, float16": (2, "fp16"),
    f"two ranks, {TOP_K:.0%} of the numbers": (2, "topk"),
}
PROBLEM = {
    "environment": ENVIRONMENT, "environments": ENVIRONMENTS, "unroll": UNROLL_LENGTH, "top_k": TOP_K, **SETTINGS,
}  # fmt: skip


def curves(
    folder: Path | None, seeds: int, updates: int, seconds: float, run: Callable[[], str], picture: Path | None
) -> dict[str, Any]:
    """Return figures of the seeds that all sides have; missing ones are trained while `seconds` last.

    `folder`: where curves are kept; `run`: returns a new name for a job.
    """
    points = Points(folder, "allreduce_curves")
    time_left = TimeLeft(seconds)
    for of in (1, 2):
        missing = {
            (name, seed): side
            for side, (ranks, name) in SIDES.items()
            for seed in range(1, seeds + 1)
            if ranks == of and points.get(side=side, seed=seed, updates=updates, problem=PROBLEM) is None
        }
        if missing and not _train(of, missing, updates, time_left, points, run()):
            break
    found = {
        side: {
            seed: point
            for seed in range(1, seeds + 1)
            if (point := points.get(side=side, seed=seed, updates=updates, problem=PROBLEM)) is not None
        }
        for side in SIDES
    }
    return _figures(found, picture)


def _train(
    of: int, missing: dict[tuple[str, int], str], updates: int, time_left: TimeLeft, points: Points, run: str
) -> bool:
    """Train curves of `of` ranks, seed after seed, and keep each; return whether there was time for all."""
    wanted = sorted(missing, key=lambda one: one[1])
    with RankProcesses(of, run=run, backend="torch", part="train", updates=updates, curves=wanted) as ranks:
        for _ in wanted:
            try:
                line = ranks.until(lambda line: line["learner"] == 0, time_left.left)
            except TimeoutError:
                print("not all curves ended within --seconds: with --folder, the same command goes on", flush=True)
                return False
            side, seed = missing[line["compression"], line["seed"]], line["seed"]
            kept = {"curve": line["curve"], "seconds": line["seconds"]}
            points.add(kept, side=side, seed=seed, updates=updates, problem=PROBLEM)
            print(f"{side}, seed {seed}: {line['curve'][-1]:.1f} at the end, {line['seconds']:.1f} s", flush=True)
    return True


def _figures(found: dict[str, dict[int, Any]], picture: Path | None) -> dict[str, Any]:
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found.values())))
    figures: dict[str, Any] = {"curve_gap": None, "seeds": seeds}
    if len(seeds) < 2:  # one seed has no spread
        print(f"seeds that all sides have: {seeds}; two are needed to compare", flush=True)
        return figures
    tables = {side: np.array([by_seed[seed]["curve"] for seed in seeds], np.float64) for side, by_seed in found.items()}
    # From the first update after which all have finished an episode.
    begun = np.all([np.isfinite(table).all(0) for table in tables.values()], axis=0)
    tables = {side: table[:, begun] for side, table in tables.items()}
    for side, table in tables.items():
        last = table[:, -1]
        print(f"{side:32} ends at a mean return of {last.mean():6.1f}, seeds {last.round().tolist()}", flush=True)
    if picture is not None:
        steps = ((np.flatnonzero(begun) + 1) * ENVIRONMENTS * UNROLL_LENGTH).tolist()
        drawn = {side: [list(zip(steps, run, strict=True)) for run in table.tolist()] for side, table in tables.items()}
        returns = "mean return of the last 100 training episodes"
        draw(picture, "CartPole by PPO: ranks at the same total batch", drawn, GOAL, returns)
    one, two, *compressed = tables
    return {
        **figures,
        "curve_gap": round(gap(tables[one], tables[two]), 3),
        "curve_gap_compressed": {side: round(gap(tables[two], tables[side]), 3) for side in compressed},
        "spread_of_seeds": {side: round(float(table.std(0, ddof=1).mean()), 1) for side, table in tables.items()},
        "distance_of_means": {side: round(distance(tables[one], table), 1) for side, table in tables.items()},
        "returns_at_the_end": {side: table[:, -1].round(1).tolist() for side, table in tables.items()},
        "mean_return_of_all_updates": {side: round(float(table.mean()), 1) for side, table in tables.items()},
        "seconds_of_a_run": {
            side: round(float(np.median([by_seed[seed]["seconds"] for seed in seeds])), 1)
            for side, by_seed in found.items()
        },
    }


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance of the mean curves of [S, U], averaged over updates."""
    return float(np.abs(one.mean(0) - other.mean(0)).mean())


def gap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance of two sides' mean curves [S, U] in deviations of their seeds; both averaged over updates.

    Below 1 it is within the seeds' spread. For two times the same five seeds it is 0.5 on average.
    """
    spread = np.sqrt((one.var(0, ddof=1) + other.var(0, ddof=1)) / 2)
    return distance(one, other) / float(spread.mean())
