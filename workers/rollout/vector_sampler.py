"""VectorSampler: steps a vector environment with a policy and returns what happened as trajectories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.networks import Memory
from agents.policies import Policy
from agents.policies.explorers import at_rest
from agents.policies.segment import Segment
from agents.trajectories import Trajectory, TrajectoryWriter
from agents.trees import cast, problems
from envs import VectorEnv
from envs.many_agents.team import VALID
from envs.masks import FINAL
from envs.masks import KEY as MASK
from envs.vector.base import blaming, stacked
from warren.errors import ConfigurationError
from warren.trees import Tree, leaves, take
from workers.rollout.sampler import load_into
from workers.runtime.timing import Timing


class VectorSampler:
    """A Sampler of one agent's environments, in one process; its budget is in steps of each.

    A fault of the environment, which messages call `name`, raises ConfigurationError: with the error of its code, file
    and line, or with the field that does not fit its spaces.
    """

    def __init__(
        self,
        vector_env: VectorEnv,
        policy: Policy,
        seed: int,
        name: str = "of the sampler",
        timing: Timing | None = None,
        fields: Collection[str] | None = None,
    ) -> None:
        """Reset the environments.

        `timing` gets the seconds of environments and policy, as parts of "collect". `fields`: those that the algorithm
        asks for, as in its Needs.
        """
        self.vector_env = vector_env
        vector_env.merges_infos = False
        self.policy = policy
        self.version = -1
        self.env_steps = 0  # over all environments, since the start
        self._generator = torch.Generator().manual_seed(seed)
        self._name, self._timing = name, timing or Timing()
        self._stepping = blaming(name, "step()")
        with blaming(self._name, "reset()"):
            self._observation, info = vector_env.reset()
        self._mask = info[MASK] if vector_env.masks is not None else None
        self._valid = None if vector_env.group is None else info[VALID]
        self._spec = policy.spec(self._mask is not None, fields=fields)
        self._memory = policy.initial_memory(vector_env.num_envs)
        self._drift: Tensor | None = None

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load."""
        load_into(self.policy, weights, version, behaviour)
        self.version = version

    def collect(self, budget: int) -> Trajectory:
        """Return the next `budget` steps of every environment: T = budget, N = vector_env.num_envs.

        Of agents that learn together, absent ones take part in the forward pass and in nothing else.
        """
        env, policy, observation, memory = self.vector_env, self.policy, self._observation, self._memory
        mask, policy.drift = self._mask, self._drift
        valid, valids = self._valid, []  # per step, if not all slots always decide
        spec, writer = self._spec, TrajectoryWriter(self._spec, budget, env.num_envs)
        writer.start(slice(None), {name: part.cpu().numpy() for name, part in memory.items()}, self.version)
        segment = Segment(policy, self._generator, spec.extras)
        acting = stepping = 0.0
        for step in range(budget):
            began = perf_counter()
            action, memory = segment.act(observation, memory, mask)
            writer.decide(step, observation, action, action_mask=mask)
            acted = perf_counter()
            acting += acted - began
            with self._stepping:
                observation, reward, terminated, truncated, info = env.step(policy.env_action(action))
            if mask is not None:
                mask = info[MASK]
            if valid is not None:
                valids.append(valid)
                valid = info[VALID]
            if policy.channels:
                reward = env.rewards.learned_from(info["reward_channels"])
            stepping += perf_counter() - acted
            writer.follow(step, reward, terminated, truncated)
            if spec.keeps_cuts and truncated.any():
                cut = np.flatnonzero(truncated & ~terminated)
                if len(cut):
                    writer.cut_off((step, cut), self._at_cuts(cut, info, memory))
            if memory:
                memory = policy.begin(memory, terminated | truncated)
            if policy.drift is not None:
                policy.drift = at_rest(policy.drift, terminated | truncated)
        last = {"observation": cast(spec.observation, observation)}
        self._check("observation", writer.observation, 2)
        self._check("observation", last["observation"], 1)
        self._check("reward", writer.reward, 2)
        began = perf_counter()
        writer.extras = segment.extras(writer.observation, writer.action)
        acting += perf_counter() - began
        if "value" in spec.last:
            last["value"] = policy.value(observation, memory)
        if mask is not None:
            last["action_mask"] = mask
        self._observation, self._memory, self._mask, self._valid = observation, memory, mask, valid
        self._drift = policy.drift
        self._timing.add("collect/environments", stepping)
        self._timing.add("collect/policy", acting)
        trajectory = writer.trajectory(last, env.pop_episodes())
        if valids:
            trajectory.valid, trajectory.group = np.stack(valids), env.group
        self.env_steps += trajectory.num_steps
        return trajectory

    def _at_cuts(self, cut: np.ndarray, info: dict[str, Any], memory: Memory) -> dict[str, Tree]:
        """Return the arrays kept of the moments at which the episodes of the slots `cut` were cut off."""
        last = cast(self._spec.observation, stacked(self.vector_env.single_observation_space, info["final_obs"][cut]))
        self._check("observation", last, 1)
        kept: dict[str, Tree] = {"observation": last}
        if self._spec.cut_action_mask is not None:
            kept["action_mask"] = take(info[FINAL], cut)
        if self._spec.cut:
            kept["value"] = self.policy.value(last, {name: part[cut] for name, part in memory.items()})
        return kept

    def close(self) -> None:
        """Close the environments."""
        self.vector_env.close()

    def _check(self, field: str, tree: Tree, leading: int) -> None:
        """Raise ConfigurationError for a number that is not finite, or not one of those that a discrete space counts.

        `leading`: axes of steps and environments.
        """
        for path, array in leaves(tree):
            # One nan would make every weight nan. With one, the sum is not finite, which is far quicker to check.
            if array.dtype.kind == "f" and not np.isfinite(array.sum()) and not np.isfinite(array).all():
                raise ConfigurationError(
                    f"environment {self._name!r}: step() gave {_not_finite(field, path, array, leading)}; all numbers "
                    "must be finite"
                )
        if field == "observation":
            shape = next(leaves(tree))[1].shape[:leading]
            if wrong := problems(self._spec.observation, tree, shape, field):
                raise ConfigurationError(f"environment {self._name!r}: step() left its observation_space: {wrong[0]}")


def _not_finite(field: str, path: str, array: np.ndarray[Any, Any], leading: int) -> str:
    """Return the first number that is not finite, and its place: "nan at [1] of its observation 'board', ..."."""
    where = np.argwhere(~np.isfinite(array))[0]
    name, shape = f"{field} {path!r}" if path else field, list(array.shape[leading:])
    number = array[tuple(where)]
    return (
        f"{number} at {where[leading:].tolist()} of its {name}, which has shape {shape}"
        if shape
        else f"{number} as {name}"
    )
