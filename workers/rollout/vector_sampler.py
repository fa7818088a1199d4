"""Sampler: steps a vector environment with a policy and returns what happened as segments."""

from __future__ import annotations

import numpy as np
import torch

from agents.policies import Policy
from agents.segments import Segment
from envs import VectorEnv


class Sampler:
    """Collects experience in one process; observations carry over from one `collect` to the next.

    Set `weight_version` whenever the policy's weights change: segments bear it.
    """

    def __init__(self, vector_env: VectorEnv, policy: Policy, seed: int) -> None:
        self.vector_env = vector_env
        self.policy = policy
        self.weight_version = 0
        self.env_steps = 0  # over all environments, since the start
        self._generator = torch.Generator().manual_seed(seed)
        self._observation, _ = vector_env.reset()

    def collect(self, num_steps: int) -> Segment:
        """The next `num_steps` steps of every environment: T = num_steps, N = vector_env.num_envs."""
        env, policy, observation = self.vector_env, self.policy, self._observation
        shape = (num_steps, env.num_envs)
        dtype = np.float32 if observation.dtype == np.float64 else observation.dtype
        observations = np.empty(shape + observation.shape[1:], dtype)
        log_probs, values, rewards = (np.empty(shape, np.float32) for _ in range(3))
        terminations, truncations = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
        final_values = np.zeros(shape, np.float32)
        actions = []
        for step in range(num_steps):
            observations[step] = observation
            action, log_probs[step], values[step] = policy.act(observation, self._generator)
            actions.append(action)
            observation, rewards[step], terminated, truncated, info = env.step(policy.env_action(action))
            terminations[step] = terminated
            truncations[step] = truncated
            if truncated.any():
                cut = np.flatnonzero(truncated & ~terminated)
                if len(cut):
                    final_values[step, cut] = policy.value(np.stack(info["final_obs"][cut]))
        self._observation = observation
        self.env_steps += num_steps * env.num_envs
        return Segment(
            observation=observations,
            action=np.stack(actions),
            log_prob=log_probs,
            value=values,
            reward=rewards,
            terminated=terminations,
            truncated=truncations,
            final_value=final_values,
            bootstrap_value=policy.value(observation),
            weight_version=self.weight_version,
            episodes=env.pop_episodes(),
        )
