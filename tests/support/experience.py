"""Trajectories of random experience for tests of algorithms: by any policy, with ends of both kinds."""

import numpy as np
import torch

from agents import Policy, Trajectory
from agents.algorithms import ALGORITHMS

# On-policy algorithms that learn once from the steps of a categorical or Gaussian policy with a value.
ON_POLICY = sorted(set(ALGORITHMS) - {"bc", "ddpg", "dqn", "qmix", "r2d2", "sac", "td3"})


def random_trajectory(policy: Policy, steps: int = 16, envs: int = 4, seed: int = 0, ending: float = 0.1) -> Trajectory:
    """Return a trajectory of `policy`'s actions, drawn now, on random observations."""
    generator = np.random.default_rng(seed)
    shape, space = (steps, envs), policy.observation_space
    assert space.shape is not None
    observation = generator.normal(size=(*shape, *space.shape)).astype(np.float32)
    acted = [policy.step(o, generator=torch.Generator().manual_seed(seed + t)) for t, o in enumerate(observation)]
    terminated, truncated = generator.random((2, *shape)) < ending / 2
    return Trajectory(
        observation=observation,
        action=np.stack([step.action for step in acted]),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated & ~terminated,
        extras={name: np.stack([step.extras[name] for step in acted]) for name in ("log_prob", "value")},
        last={"observation": observation[0], "value": generator.normal(size=envs).astype(np.float32)},
        cut={"value": np.where(truncated & ~terminated, 0.5, 0).astype(np.float32)},
        version=np.zeros(envs, np.int64),
        episodes=np.zeros((0, 2), np.float32),
    )
