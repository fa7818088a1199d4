"""CPU time of an actor's vector step, by what the algorithm asks of it.

`python -m benchmarks.acting [--rounds 20] [--envs 64] [--network '{"shared": true}']`: CartPole, one thread, segments
of 128 steps, the algorithms' samplers in turns; microseconds of each one's best segment and of the median.
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
from benchmarks.apparatus.report import finish
from warren.trees import leaves
from workers.rollout.asked import fields_asked
from workers.rollout.vector_sampler import VectorSampler

STEPS = 128  # of a segment
WARM_UP = 2  # segments
ON_POLICY = ("a2c", "appo", "impala", "ppo")  # those that act by the same policy


def sampler_of(fields: Collection[str], num_envs: int, network: Mapping[str, Any]) -> VectorSampler:
    """Return a sampler whose policy has learned nothing."""
    vector_env = envs.make_vector("CartPole-v1", num_envs, 1)
    policy = build_policy(network, vector_env.single_observation_space, vector_env.single_action_space, 1)
    return VectorSampler(vector_env, policy, 1, fields=fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="segments of each algorithm")
    parser.add_argument("--envs", type=int, default=64, help="environments that step together")
    parser.add_argument("--network", type=json.loads, default={}, help="settings of the network, as JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    policy = build_policy(given.network, *envs.spaces("CartPole-v1"), 1)
    fields = {name: fields_asked({"name": name}, policy) for name in ON_POLICY}
    samplers = {name: sampler_of(asked, given.envs, given.network) for name, asked in fields.items()}
    took: dict[str, list[float]] = {name: [] for name in samplers}
    size: dict[str, int] = {}
    for round_ in range(WARM_UP + given.rounds):
        for name, sampler in samplers.items():
            began = time.process_time()
            segment = sampler.collect(STEPS)
            if round_ >= WARM_UP:
                took[name].append(1e6 * (time.process_time() - began) / STEPS)
            size[name] = sum(array.nbytes for _, array in leaves(segment.to_dict()) if array is not segment.episodes)
    figures = {
        name: {"best": round(min(all_)), "median": round(median(all_)), "bytes": size[name], "asks": fields[name]}
        for name, all_ in took.items()
    }
    for name, figure in figures.items():
        print(f"{name:7}{figure['best']:6} us best{figure['median']:6} median{figure['bytes']:10,} bytes", flush=True)
    finish("acting", figures)


if __name__ == "__main__":
    main()
