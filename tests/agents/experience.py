"""Segments of random experience for the tests of algorithms: any policy, ends of both kinds included."""

import numpy as np
import torch

from agents import Policy, Segment


def random_segment(policy: Policy, steps: int = 16, envs: int = 4, seed: int = 0, ending: float = 0.1) -> Segment:
    """What `policy` (as it is now) might have done on random observations."""
    generator = np.random.default_rng(seed)
    shape = (steps, envs)
    observation = generator.normal(size=(*shape, *policy.observation_space.shape)).astype(np.float32)
    acted = [policy.step(o, generator=torch.Generator().manual_seed(seed + t)) for t, o in enumerate(observation)]
    terminated, truncated = generator.random((2, *shape)) < ending / 2
    return Segment(
        observation=observation,
        action=np.stack([step.action for step in acted]),
        log_prob=np.stack([step.extras["log_prob"] for step in acted]),
        value=np.stack([step.extras["value"] for step in acted]),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated & ~terminated,
        final_value=np.where(truncated & ~terminated, 0.5, 0).astype(np.float32),
        bootstrap_value=generator.normal(size=envs).astype(np.float32),
        weight_version=0,
        episodes=np.zeros((0, 2), np.float32),
    )
