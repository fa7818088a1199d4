"""Warren's replay in a process of its own: `python -m benchmarks.replay.own CASE full|quick SECONDS`."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable

import numpy as np

from agents.replay import ReplayBuffer
from agents.trajectories import Trajectory
from benchmarks.replay.cases import CASES, QUICK, Case, rate


def segment(case: Case, seed: int) -> Trajectory:
    """Return a segment of random transitions."""
    generator = np.random.default_rng(seed)
    shape, seen = (case.steps, case.slots), case.observations(generator)
    return Trajectory(
        observation=seen[:-1],
        action=generator.integers(0, 4, shape),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=generator.random(shape) < 0.01,
        truncated=np.zeros(shape, np.bool_),
        extras={},
        last={"observation": seen[-1]},
        cut={},
        version=np.zeros(case.slots, np.int64),
        episodes=np.zeros((0, 2), np.float32),
    )


def filled(case: Case, exponent: float | None) -> tuple[ReplayBuffer, Callable[[], None]]:
    """Return a buffer that is full, and a function that inserts one more segment."""
    segments = itertools.cycle([segment(case, seed) for seed in range(4)])
    numbers = itertools.count()
    buffer = ReplayBuffer(case.capacity, 1, exponent, seed=1)

    def insert() -> None:
        buffer.add(next(segments), "a", next(numbers))

    while len(buffer) <= case.capacity - case.steps * case.slots:
        insert()
    return buffer, insert


def evenly(case: Case, seconds: float) -> dict[str, float]:
    """Return the rates of a replay with even draws."""
    buffer, insert = filled(case, None)
    inserted = rate(insert, case.steps * case.slots, seconds)
    return {"insert": inserted, "sample": rate(lambda: buffer.draw(case.batch), case.batch, seconds)}


def main() -> None:
    case = (CASES if sys.argv[2] == "full" else QUICK)[sys.argv[1]]
    seconds = float(sys.argv[3])
    found = evenly(case, seconds)
    by_priority, _ = filled(case, 0.6)
    priorities = np.random.default_rng(1).random(case.batch)

    def learn() -> None:
        by_priority.set_priorities(by_priority.draw(case.batch, 0.4), priorities)

    found["prioritized"] = rate(learn, case.batch, seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
