"""Batches of random numbers, like a replay's: sequences that cross ends of episodes of either kind."""

import numpy as np

from agents import Batch, Policy, Trajectory


def drawn_batch(
    policy: Policy, length: int = 3, slots: int = 12, seed: int = 0, weighted: bool = False, ending: float = 0.4
) -> Batch:
    """Return a batch of `slots` sequences of `length` steps by `policy`; `weighted`: with unequal weights."""
    generator = np.random.default_rng(seed)
    shape, seen = (length, slots), policy.observation_space.shape or ()

    def numbers(*leading: int) -> np.ndarray:
        return generator.normal(size=(*leading, *seen)).astype(np.float32)

    action = policy.step(numbers(length * slots)).action
    ended = generator.random(shape) < ending
    terminated = ended & (generator.random(shape) < 0.5)
    truncated = ended & ~terminated
    at = np.argwhere(truncated)
    drawn = Trajectory(
        observation=numbers(*shape),
        action=action.reshape(*shape, *action.shape[1:]),
        reward=generator.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        extras={},
        last={"observation": numbers(slots)},
        cut={},
        version=np.zeros(slots, np.int64),
        episodes=np.zeros((0, 2), np.float32),
        memory={name: part.numpy().copy() for name, part in policy.initial_memory(slots).items()},
        cut_at=at,
        cut_observation=numbers(len(at)),
    )
    return Batch([drawn], generator.uniform(0.2, 1, slots).astype(np.float32) if weighted else None)
