"""Recorded observations: what a policy saw in a row, in one file of a run folder, for whoever compares policies on it.

The learner writes what it learned from; `recorded.safetensors` holds "observation" (of a Dict or Tuple
"observation/NAME" for each leaf) [T, N, ...], "begins" bool [T, N], and "memory/NAME" [N, ...] of the policy's memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from agents.policies import Policy
from agents.spaces import SpaceTree
from agents.trajectories import Trajectory
from agents.trees import problems, spec_of
from warren.errors import CheckpointError
from warren.files import write_whole
from warren.trees import Tree, leaves, map_tree
from workers.runtime.trained import Trained

FILE = "recorded.safetensors"
BYTES = 4 << 20  # of observations, in a file that the learner writes


@dataclass(frozen=True)
class Recorded:
    """T steps of N slots, as a Trajectory has them."""

    observation: Tree  # [T, N, ...]
    begins: np.ndarray  # bool [T, N]: where an episode begins, and with it the memory
    memory: dict[str, np.ndarray] = field(default_factory=dict)  # [N, ...] before step 0

    @property
    def observations(self) -> int:
        """T * N."""
        return self.begins.size

    @classmethod
    def of(cls, trajectory: Trajectory, most: int = BYTES) -> Recorded:
        """Copies of as many slots as `most` bytes hold, one at least."""
        size = sum(leaf.nbytes for _, leaf in leaves(trajectory.observation)) / trajectory.num_slots
        slots = slice(max(1, int(most / size)))
        over = (trajectory.terminated | trajectory.truncated)[:, slots]
        begins = np.concatenate([np.zeros_like(over[:1]), over[:-1]])
        observation = map_tree(lambda leaf: leaf[:, slots].copy(), trajectory.observation)
        return cls(observation, begins, {name: part[slots].copy() for name, part in trajectory.memory.items()})

    @classmethod
    def played(cls, trained: Trained, steps: int, seed: int = 0) -> Recorded:
        """`steps` of the environment that it was trained on, by its own actions, drawn as in training."""
        env = trained.make()
        observations, begins, over = [], [], True
        trained.begin()
        try:
            for step in range(steps):
                if over:
                    observation, _ = env.reset(seed=seed + step)
                    trained.begin()
                observations.append(map_tree(np.asarray, observation))
                begins.append(over)
                observation, _, terminated, truncated, _ = env.step(trained.act(observation, greedy=False))
                over = bool(terminated or truncated)
        finally:
            env.close()
        tree = map_tree(lambda spec, *parts: np.stack(parts)[:, None].astype(spec.dtype, copy=False),
                        spec_of(env.observation_space), *observations)  # fmt: skip
        return cls(tree, np.array(begins)[:, None], _no_memory(trained.policy, 1))

    def write(self, file: Path, policy: Policy) -> None:
        """Into `file`, whole or not at all. Raises OSError."""
        write_whole(file, self.to_bytes(policy))

    def to_bytes(self, policy: Policy) -> bytes:
        """What the file holds."""
        parts = SpaceTree(policy.observation_space, "observation").flatten(self.observation)
        named = {"observation": parts} if not isinstance(parts, dict) else _under("observation/", parts)
        held = {**named, "begins": self.begins, **_under("memory/", self.memory)}
        data: bytes = safetensors.numpy.save({name: np.ascontiguousarray(part) for name, part in held.items()})
        return data

    @classmethod
    def read(cls, file: Path, policy: Policy) -> Recorded:
        """What `write` left there. Raises CheckpointError for a file that is not there, damaged, or of other spaces."""
        try:
            held = safetensors.numpy.load_file(file)
            begins = held["begins"]
            tree = SpaceTree(policy.observation_space, "observation")
            if tree.bare:
                observation = held["observation"]
            else:
                observation = tree.unflatten({name: held[f"observation/{name}"] for name in tree.leaves})
            memory = {name: held[f"memory/{name}"] for name in policy.network.memory}
        except (OSError, SafetensorError, KeyError, IndexError) as error:
            raise CheckpointError(f"{file}: holds no recorded observations of this policy ({error!r})") from None
        wrong = problems(spec_of(policy.observation_space), observation, begins.shape, "observation")
        if wrong or begins.ndim != 2 or not begins.size:
            raise CheckpointError(f"{file}: {'; '.join(wrong) or 'holds no steps of slots'}")
        return cls(observation, begins, memory)


def _no_memory(policy: Policy, slots: int) -> dict[str, np.ndarray]:
    return {name: part.numpy() for name, part in policy.initial_memory(slots).items()}


def _under(prefix: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": part for name, part in parts.items()}
