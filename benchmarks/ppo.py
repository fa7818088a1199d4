"""PPO's learning in one process, with fresh and stale weights, beside Stable-Baselines3's at equal settings.

`python -m benchmarks.ppo [--seeds 5] [--lags 0 1 2] [--no-peer]`: environment steps and seconds until the mean return
of the last 100 training episodes reaches the environment's goal. Settings are those of conf/. A lag of k means that
experience comes from the weights of k updates ago, as when actors do not wait for the learner. One core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

import envs
from agents import build_algorithm, build_policy
from agents.checkpoints import load_weights
from benchmarks.learning.peers import Outcome, Peer, learn
from workers.config.schema import Config, EnvConfig
from workers.rollout.vector_sampler import VectorSampler

CONF = Path(__file__).resolve().parent.parent / "conf"
ACTORS = 2  # a distributed run's default: this process does the work of its actors and learner


def learn_warren(env: dict[str, Any], algorithm: dict[str, Any], limit: int, lag: int, seed: int) -> Outcome:
    """Make one run of Warren's sampler and PPO."""
    vector_env = envs.make_vector(env["id"], ACTORS * env["num_envs"], seed=1000 * seed)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    learning, acting = (build_policy({"name": "mlp"}, *spaces, seed) for _ in range(2))
    learner = build_algorithm(algorithm["name"], algorithm, learning, seed)
    sampler = VectorSampler(vector_env, acting, seed)
    versions = deque([_copy(learning)], maxlen=lag + 1)
    returns: deque[float] = deque(maxlen=100)
    start, sampling = time.perf_counter(), 0.0
    while sampler.env_steps < limit:
        load_weights(acting, versions[0])
        began = time.perf_counter()
        trajectory = sampler.collect(env["unroll_length"])
        sampling += time.perf_counter() - began
        returns.extend(trajectory.episodes[:, 0].tolist())
        if len(returns) == 100 and np.mean(returns) >= env["goal"]:
            return Outcome(sampler.env_steps, time.perf_counter() - start, sampling)
        learner.update([trajectory])
        versions.append(_copy(learning))
    return Outcome(None, time.perf_counter() - start, sampling)


def _copy(policy: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}


def learn_stable_baselines3(env: dict[str, Any], algorithm: dict[str, Any], limit: int, seed: int) -> Outcome:
    """Make one run of Stable-Baselines3's PPO at the same settings."""
    of_env = EnvConfig(id=env["id"], num_envs=env["num_envs"], goal=env["goal"])
    config = Config(
        env=of_env, algorithm=algorithm, actors=ACTORS, unroll_length=env["unroll_length"], total_steps=limit, seed=seed
    )
    return learn(Peer(), config, seed)


def measure(label: str, learn: Callable[[int], Outcome], seeds: int) -> dict[str, Any]:
    """Run `learn` for each seed, print a row, return the figures."""
    outcomes = [learn(seed) for seed in range(1, seeds + 1)]
    solved = [o for o in outcomes if o.steps is not None]
    row = {
        "solved": f"{len(solved)}/{seeds}",
        "steps_mean": round(float(np.mean([o.steps for o in solved]))) if solved else None,
        "steps_max": max(o.steps or 0 for o in outcomes) if len(solved) == seeds else None,
        "seconds_mean": round(float(np.mean([o.seconds for o in outcomes])), 2),
        "sampling_seconds_mean": round(float(np.mean([o.sampling_seconds for o in outcomes])), 2),
        "runs": [asdict(o) for o in outcomes],
    }
    print(f"{label:<28}" + "".join(f"{row[name]!s:>20}" for name in COLUMNS), flush=True)
    return row


COLUMNS = ("solved", "steps_mean", "steps_max", "seconds_mean", "sampling_seconds_mean")


def _settings(path: str) -> dict[str, Any]:
    settings: Any = OmegaConf.to_container(OmegaConf.load(CONF / path), resolve=False)
    return {name: value for name, value in settings.items() if name != "defaults"}  # left to Hydra


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lags", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--limit", type=int, default=200_000, help="environment steps after which a run is given up")
    parser.add_argument("--no-peer", action="store_true", help="leave out Stable-Baselines3")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cartpole, algorithm = _settings("env/cartpole.yaml"), _settings("algorithm/ppo.yaml")
    env = {**cartpole["env"], "unroll_length": cartpole["unroll_length"]}
    env["goal"] = envs.reward_threshold(env["id"])
    seeds, limit = options.seeds, options.limit
    print(f"{'':<28}" + "".join(f"{name.removesuffix('_mean'):>20}" for name in COLUMNS))
    result = {}
    for lag in options.lags:
        learn = partial(learn_warren, env, algorithm, limit, lag)
        result[f"warren_lag_{lag}"] = measure(f"Warren, weights {lag} behind", learn, seeds)
    if not options.no_peer:
        learn = partial(learn_stable_baselines3, env, algorithm, limit)
        result["stable_baselines3"] = measure("Stable-Baselines3", learn, seeds)
    print(
        json.dumps({"benchmark": "ppo", "env": env, "algorithm": algorithm, "python": sys.version.split()[0], **result})
    )


if __name__ == "__main__":
    main()
