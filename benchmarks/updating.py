"""CPU time of an update, for each algorithm, in torch and in compiled C in turns.

`python -m benchmarks.updating [--only a2c impala] [--rounds 20] [--network '{"shared": true}']`: CartPole, one thread;
milliseconds of the best update and of the median, the same trajectories again and again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

import envs
from agents import Trajectory, build_algorithm, build_policy
from agents.algorithms.contract import Algorithm
from agents.native.library import choose
from benchmarks.apparatus.report import finish
from workers.rollout.asked import fields_asked
from workers.rollout.vector_sampler import VectorSampler

WARM_UP = 3  # updates
# Steps of a trajectory, its environments, and trajectories: an update from two actors, and one large batch.
SHAPES = {"small": (20, 8, 2), "large": (128, 64, 2)}
CASES: dict[str, dict[str, Any]] = {
    "a2c": {},
    "impala": {},
    "appo": {"minibatch_size": 4096},
    "ppo": {"minibatch_size": 4096, "epochs": 4},
}


def trajectories(network: Mapping[str, Any], name: str, shape: tuple[int, int, int]) -> list[Trajectory]:
    """Return what actors with an untrained policy send."""
    steps, num_envs, number = shape
    found = []
    for seed in range(number):
        vector_env = envs.make_vector("CartPole-v1", num_envs, seed)
        policy = build_policy(network, vector_env.single_observation_space, vector_env.single_action_space, 1)
        sampler = VectorSampler(vector_env, policy, seed, fields=fields_asked({"name": name}, policy))
        found.append(sampler.collect(steps))
        sampler.close()
    return found


def algorithm_of(network: Mapping[str, Any], name: str) -> Algorithm:
    """Return an untrained algorithm, at a learning rate that hardly moves it."""
    policy = build_policy(network, *envs.spaces("CartPole-v1"), 1)
    return build_algorithm(name, {**CASES[name], "learning_rate": 1e-6}, policy, 1)


def measured(network: Mapping[str, Any], name: str, shape: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Return milliseconds of the best and the median update by "torch" and "native"."""
    data = trajectories(network, name, shape)
    choices = ("torch", "native")
    algorithms = {choice: algorithm_of(network, name) for choice in choices}
    took: dict[str, list[float]] = {choice: [] for choice in choices}
    for round_ in range(WARM_UP + rounds):
        for choice, algorithm in algorithms.items():
            choose(choice)
            began = time.process_time()
            algorithm.update(data)
            if round_ >= WARM_UP:
                took[choice].append(1e3 * (time.process_time() - began))
    return {choice: {"best": round(min(all_), 2), "median": round(median(all_), 2)} for choice, all_ in took.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="algorithms")
    parser.add_argument("--rounds", type=int, default=20, help="updates of each")
    parser.add_argument("--network", type=json.loads, default={}, help="settings of the network, as JSON")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures = {}
    for name in given.only:
        for size, shape in SHAPES.items():
            found = figures[f"{name}_{size}"] = measured(given.network, name, shape, given.rounds)
            steps = shape[0] * shape[1] * shape[2]
            texts = [f"{choice} {one['best']:8.2f} {one['median']:8.2f}" for choice, one in found.items()]
            print(f"{name:7}{steps:7,} steps: {'  '.join(texts)} ms best, median", flush=True)
    finish("updating", figures)


if __name__ == "__main__":
    main()
