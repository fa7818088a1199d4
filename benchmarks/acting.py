"""CPU time of an actor's vector step, by algorithm.

`python -m benchmarks.acting [--rounds 20] [--envs 64] [--env Pendulum-v1] [--only ppo] [--network '{"shared": true}']`:
CartPole, one thread, segments of 128 steps; the algorithms' samplers take turns, in torch and in compiled C.
Microseconds of each one's best segment and of the median.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Mapping
from statistics import median
from typing import Any

import torch

import envs
from agents import build_policy
from agents.native.library import choose
from benchmarks.apparatus.report import finish
from warren.trees import leaves
from workers.rollout.asked import fields_asked
from workers.rollout.vector_sampler import VectorSampler

STEPS = 128  # steps of a segment
WARM_UP = 2  # segments
ON_POLICY = ("a2c", "appo", "impala", "ppo")  # these act by the same policy
CHOICES = ("torch", "native")


def sampler_of(env: str, fields: Collection[str], num_envs: int, network: Mapping[str, Any]) -> VectorSampler:
    """Return a sampler whose policy has learned nothing."""
    vector_env = envs.make_vector(env, num_envs, 1)
    policy = build_policy(network, vector_env.single_observation_space, vector_env.single_action_space, 1)
    return VectorSampler(vector_env, policy, 1, fields=fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="segments of each algorithm")
    parser.add_argument("--envs", type=int, default=64, help="environments that step together")
    parser.add_argument("--env", default="CartPole-v1", help="the environment's name")
    parser.add_argument("--only", nargs="*", choices=ON_POLICY, default=ON_POLICY, help="algorithms")
    parser.add_argument("--network", type=json.loads, default={}, help="settings of the network, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy = build_policy(given.network, *envs.spaces(given.env), 1)
    fields = {name: fields_asked({"name": name}, policy) for name in given.only}
    samplers = {
        (name, choice): sampler_of(given.env, asked, given.envs, given.network)
        for name, asked in fields.items()
        for choice in CHOICES
    }
    took: dict[tuple[str, str], list[float]] = {key: [] for key in samplers}
    size: dict[str, int] = {}
    for round_ in range(WARM_UP + given.rounds):
        for (name, choice), sampler in samplers.items():
            choose(choice)
            began = time.process_time()
            segment = sampler.collect(STEPS)
            if round_ >= WARM_UP:
                took[name, choice].append(1e6 * (time.process_time() - began) / STEPS)
            size[name] = sum(array.nbytes for _, array in leaves(segment.to_dict()) if array is not segment.episodes)
    figures: dict[str, dict[str, Any]] = {}
    for name, asked in fields.items():
        times = {choice: took[name, choice] for choice in CHOICES}
        figures[name] = {
            choice: {"best": round(min(all_)), "median": round(median(all_))} for choice, all_ in times.items()
        }
        texts = [f"{choice} {round(min(all_)):5}{round(median(all_)):6}" for choice, all_ in times.items()]
        print(f"{name:7} {'  '.join(texts)} us best, median{size[name]:10,} bytes", flush=True)
        figures[name] |= {"bytes": size[name], "asks": asked}
    finish("acting", figures)


if __name__ == "__main__":
    main()
