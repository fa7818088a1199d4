"""Sampler: steps a vector environment with a policy and returns what happened as trajectories."""

from __future__ import annotations

import numpy as np
import torch

from agents.policies import Policy
from agents.trajectories import Trajectory
from agents.trees import travelling
from envs import VectorEnv
from envs.vector.base import blaming
from warren.errors import ConfigurationError


class Sampler:
    """Collects experience in one process; observations carry over from one `collect` to the next.

    Set `weight_version` whenever the policy's weights change: trajectories carry it. What goes wrong in the
    environment, `name` in messages, is a ConfigurationError: what its code raised, with file and line, or the field
    that is not as its spaces say.
    """

    def __init__(self, vector_env: VectorEnv, policy: Policy, seed: int, name: str = "of the sampler") -> None:
        self.vector_env = vector_env
        self.policy = policy
        self.weight_version = 0
        self.env_steps = 0  # over all environments, since the start
        self._generator = torch.Generator().manual_seed(seed)
        self._name = name
        with blaming(self._name, "reset()"):
            self._observation, _ = vector_env.reset()
        self._memory = policy.initial_memory(vector_env.num_envs)

    def collect(self, num_steps: int) -> Trajectory:
        """The next `num_steps` steps of every environment: T = num_steps, N = vector_env.num_envs."""
        env, policy, observation, memory = self.vector_env, self.policy, self._observation, self._memory
        remembered_before = {name: part.cpu().numpy() for name, part in memory.items()}
        shape = (num_steps, env.num_envs)
        observations = np.empty(shape + observation.shape[1:], travelling(observation.dtype))
        log_probs, values, rewards = (np.empty(shape, np.float32) for _ in range(3))
        terminations, truncations = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
        final_values = np.zeros(shape, np.float32)
        actions = []
        for step in range(num_steps):
            observations[step] = observation
            action, extras, memory = policy.step(observation, memory, generator=self._generator)
            log_probs[step], values[step] = extras["log_prob"], extras["value"]
            actions.append(action)
            with blaming(self._name, "step()"):
                observation, rewards[step], terminated, truncated, info = env.step(policy.env_action(action))
            terminations[step] = terminated
            truncations[step] = truncated
            if truncated.any():
                cut = np.flatnonzero(truncated & ~terminated)
                if len(cut):
                    remembered = {name: part[cut] for name, part in memory.items()}
                    final_values[step, cut] = policy.value(np.stack(info["final_obs"][cut]), remembered)
            if memory:
                memory = policy.begin(memory, terminated | truncated)
        self._check("observation", observations, 2)
        self._check("observation", observation, 1)
        self._check("reward", rewards, 2)
        self._observation, self._memory = observation, memory
        self.env_steps += num_steps * env.num_envs
        return Trajectory(
            observation=observations,
            action=np.stack(actions),
            reward=rewards,
            terminated=terminations,
            truncated=truncations,
            extras={"log_prob": log_probs, "value": values},
            last={"observation": observation.astype(observations.dtype), "value": policy.value(observation, memory)},
            cut={"value": final_values},
            version=np.full(env.num_envs, self.weight_version),
            episodes=env.pop_episodes(),
            memory=remembered_before,
        )

    def _check(self, field: str, array: np.ndarray, leading: int) -> None:
        """`array` of `field` has `leading` dimensions of steps and environments."""
        # One nan would make every weight nan. A sum is not finite where a number is not, and far quicker to check.
        if array.dtype.kind == "f" and not np.isfinite(array.sum()) and not np.isfinite(array).all():
            where = np.argwhere(~np.isfinite(array))[0]
            shape = list(array.shape[leading:])
            place = (
                f" at {where[leading:].tolist()} of its {field}, which has shape {shape}" if shape else f" as {field}"
            )
            raise ConfigurationError(
                f"environment {self._name!r}: step() gave {array[tuple(where)]}{place}; all numbers must be finite"
            )
