"""Run folders with an untrained policy and a sample of its observations, for tests that serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from agents import Policy, build_algorithm, build_policy, checkpoints
from agents.trees import spec_of
from warren.trees import map_tree
from workers.config.schema import Config, EnvConfig, to_yaml
from workers.gateway import Actor
from workers.runtime.observation_sample import FILE, ObservationSample

ROOT = Path(__file__).parents[2]
ACTOR = "examples/gamecore/actor.py:CartPole"
SHAPES = gymnasium.spaces.Box(-10, 10, (4,), np.float32), gymnasium.spaces.Discrete(2)


def recorded_of(policy: Policy, steps: int = 64, slots: int = 4, seed: int = 0) -> ObservationSample:
    """Return observations drawn from the policy's space, in episodes of some 20 steps."""
    random = np.random.default_rng(seed)
    policy.observation_space.seed(seed)
    several = [policy.observation_space.sample() for _ in range(steps * slots)]
    observation = map_tree(
        lambda spec, *parts: np.stack(parts).reshape(steps, slots, *spec.shape).astype(spec.dtype),
        spec_of(policy.observation_space), *several,
    )  # fmt: skip
    memory = {name: part.numpy() for name, part in policy.initial_memory(slots).items()}
    return ObservationSample(observation, random.random((steps, slots)) < 0.05, memory)


def save(folder: Path, version: int, network: dict[str, Any], seed: int = 0) -> Policy:
    """Save another checkpoint of the run in `folder`; return its policy."""
    policy = build_policy({"policy_gain": 1.0, **network}, *SHAPES, seed)
    algorithm = build_algorithm("ppo", {}, policy, 0)
    checkpoints.save(folder / "checkpoints", f"{version:08d}", policy, algorithm, {"version": version})
    return policy


def run_folder(folder: Path, network: dict[str, Any], version: int = 1, env: str = f"gamecore:{ACTOR}") -> Policy:
    """Make the folder of a run as its learner leaves it; return its policy."""
    config = Config(network={"name": "mlp", "policy_gain": 1.0, **network}, env=EnvConfig(id=env))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    policy = save(folder, version, network)
    recorded_of(policy).write(folder / FILE, policy)
    return policy


class Vector(Actor):
    """An actor whose ticks take sixteen bytes and answer with the action."""

    observation_space, action_space = SHAPES

    async def tick(self, body: bytes) -> bytes:
        return bytes([await self.act(np.frombuffer(body, np.float32))])
