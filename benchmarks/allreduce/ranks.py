"""One rank of benchmarks.allreduce, a process of its own: `python -m benchmarks.allreduce.ranks JSON`, see `Job`.

It takes its place among the others as a learner does, by Redis (WARREN_REDIS_URL), and prints its measurements as lines
of JSON. Training is that of a run (sampler, PPO, the exchange of ranks before an update) without queues in between.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import redis
import torch

import envs
from agents import build_algorithm, build_policy, checkpoints
from workers.learning.allreduce.compression import build
from workers.learning.allreduce.ranks import Ranks
from workers.learning.allreduce.ring import RanksChanged
from workers.rollout.vector_sampler import VectorSampler

ENVIRONMENT = "CartPole-v1"
ENVIRONMENTS, UNROLL_LENGTH = 8, 128  # of all ranks together: an update has 1,024 steps, like a run's by default
SETTINGS = {"name": "ppo", "learning_rate": 1.5e-3, "epochs": 10, "minibatch_size": 256}  # conf's, but 10 epochs
TOP_K = 0.01
Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    """A rank's work. `of`: number of ranks; `part`: average, update or train; the rest are options of the parts."""

    run: str
    learner: int
    of: int
    backend: str
    part: str
    compressions: Sequence[str] = ("none",)
    megabytes: Sequence[float] = ()
    hidden_sizes: Sequence[Sequence[int]] = ((64, 64),)
    seeds: Sequence[int] = (1,)
    curves: Sequence[tuple[str, int]] = ()  # (compression, seed) of each; without any, all combinations of those above
    repeats: int = 3
    updates: int = 0  # 0: until it is killed


class Learner:
    """A policy, PPO, and this rank's part of the environments, which are the same for any number of ranks."""

    def __init__(self, ranks: Ranks, job: Job, seed: int, hidden_sizes: Sequence[int] = (64, 64)) -> None:
        self.ranks, own = ranks, ENVIRONMENTS // job.of
        vector_env = envs.make_vector(ENVIRONMENT, own, seed=1000 * seed + own * job.learner)
        spaces = vector_env.single_observation_space, vector_env.single_action_space
        self.policy = build_policy({"name": "mlp", "hidden_sizes": list(hidden_sizes)}, *spaces, seed)
        self.algorithm: Any = build_algorithm("ppo", SETTINGS, self.policy, seed)
        self.algorithm.take_peers(ranks)
        self.sampler = VectorSampler(vector_env, self.policy, 100 * seed + job.learner)
        self.updates = 0
        self.trajectory = self.sampler.collect(UNROLL_LENGTH)

    def enter(self) -> np.ndarray:
        """Wait for the other ranks; return the returns of all their episodes. Raises RanksChanged, and RuntimeError if
        their weights are not this rank's, bit for bit."""
        fingerprint = float(checkpoints.fingerprint(self.policy))
        found, episodes = self.ranks.enter([fingerprint], self.trajectory.episodes)
        if any(one != [fingerprint] for one in found):
            raise RuntimeError(f"weights differ among ranks after {self.updates} updates")
        return np.concatenate(episodes)[:, 0]

    def join(self) -> None:
        """Take a place in the next ring, with the state of the rank that is furthest."""
        self.ranks.join(lambda: (self.updates, 0), self._state, self._take)

    def update(self) -> np.ndarray:
        """Make one update, again if a rank was lost during it; return the returns of all episodes in it."""
        while True:
            try:
                returns = self.enter()
                self.algorithm.update([self.trajectory])
                break
            except RanksChanged:
                self.join()
        self.updates += 1
        return returns

    def _state(self) -> bytes:
        moment = checkpoints.Moment.of(self.policy, self.algorithm, {"updates": self.updates})
        return checkpoints.to_bytes(moment)

    def _take(self, data: bytes) -> None:
        state = checkpoints.from_bytes(data, "the state of another rank")
        checkpoints.restore(self.policy, self.algorithm, state)
        self.updates = state.meta["updates"]


def average(ranks: Ranks, job: Job, say: Say) -> None:
    """Say ms of each average of a gradient, and the bytes that a rank sends; the first, a warm-up, is left out."""
    for size in job.megabytes:
        gradient = torch.randn(int(size * 1e6) // 4, generator=torch.Generator().manual_seed(job.learner))
        for name in job.compressions:
            how = ranks.compression = build(name, TOP_K)
            times = []
            for _ in range(job.repeats + 1):
                given = gradient.clone()
                ranks.least(0)  # begin together
                began = time.perf_counter()
                ranks.average(given, torch.tensor(0.0), 1)
                times.append(1e3 * (time.perf_counter() - began))
            sent = how.sent // (job.repeats + 1)
            say({"megabytes": size, "compression": name, "ms": times[1:], "sent": sent})


def update(ranks: Ranks, job: Job, say: Say) -> None:
    """Say ms of each whole update of PPO, and the bytes that a rank sends in one."""
    for hidden_sizes in job.hidden_sizes:
        for name in job.compressions:
            learner = Learner(ranks, job, 1, hidden_sizes)
            how = ranks.compression = build(name, TOP_K)
            times = []
            for _ in range(job.repeats + 1):
                ranks.least(0)
                began = time.perf_counter()
                learner.algorithm.update([learner.trajectory])
                times.append(1e3 * (time.perf_counter() - began))
            parameters = sum(parameter.numel() for parameter in learner.policy.parameters())
            sent = how.sent // (job.repeats + 1)
            say({"parameters": parameters, "compression": name, "ms": times[1:], "sent": sent})


def train(ranks: Ranks, job: Job, say: Say, first: Learner) -> None:
    """Say the learning curve of each seed, the hash of the last weights, and the number of optimizer steps.

    In a run that goes on until it is killed, say a line for each update, with the time.monotonic() of its end.
    """
    while not job.updates:
        first.update()
        say({"at": time.monotonic(), "size": ranks.size, "updates": first.updates})
        first.trajectory = first.sampler.collect(UNROLL_LENGTH)
    for name, seed in job.curves or product(job.compressions, job.seeds):
        learner, curve, began = Learner(ranks, job, seed), [], time.perf_counter()
        ranks.compression = build(name, TOP_K)
        returns: deque[float] = deque(maxlen=100)
        for _ in range(job.updates):
            returns.extend(learner.update())
            curve.append(float(np.mean(returns)) if returns else None)
            learner.trajectory = learner.sampler.collect(UNROLL_LENGTH)
        learner.enter()  # compares the last weights
        steps = float(learner.algorithm.descent.optimizer.state["step"])
        say(
            {
                "compression": name, "seed": seed, "curve": curve, "optimizer_steps": int(steps),
                "weights": checkpoints.digest(learner.policy), "seconds": round(time.perf_counter() - began, 2),
            }
        )  # fmt: skip


def main(text: str) -> None:
    """Take a place among the ranks, work, and leave."""
    job = Job(**json.loads(text))
    torch.set_num_threads(1)
    client = redis.Redis.from_url(os.environ["WARREN_REDIS_URL"])
    ranks = Ranks(client, job.run, job.learner, job.of, job.backend)
    ranks.begin(0)
    first = Learner(ranks, job, job.seeds[0])
    first.join()

    def say(line: dict[str, Any]) -> None:
        print(json.dumps({"learner": job.learner, **line}), flush=True)

    if job.part == "train":
        train(ranks, job, say, first)
    else:
        {"average": average, "update": update}[job.part](ranks, job, say)
    ranks.least(0)  # no rank leaves before all are done
    ranks.leave()


if __name__ == "__main__":
    main(sys.argv[1])
