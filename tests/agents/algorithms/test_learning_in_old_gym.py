"""PPO learns an environment of the old gym package under today's NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import envs
from agents import build_policy
from agents.algorithms.ppo import PPO, PPOConfig
from workers.rollout.vector_sampler import VectorSampler


@pytest.mark.usefixtures("one_thread")
def test_ppo_learns_the_cartpole_of_old_gym() -> None:
    vector_env = envs.make_vector("gym:CartPole-v1", 8, seed=3)
    assert type(envs.make("gym:CartPole-v1").unwrapped.env).__module__.startswith("gym.")  # type: ignore[attr-defined]
    policy = build_policy({}, vector_env.single_observation_space, vector_env.single_action_space, seed=3)
    config = PPOConfig(learning_rate=1.5e-3, epochs=6, minibatch_size=256, gamma=0.99)
    algorithm, sampler = PPO(policy, config, seed=3), VectorSampler(vector_env, policy, seed=3)
    returns: list[float] = []
    for _ in range(60):
        trajectory = sampler.collect(128)
        algorithm.update([trajectory])
        returns.extend(trajectory.episodes[:, 0].tolist())
        if len(returns) > 20 and np.mean(returns[-20:]) > 195:  # there CartPole-v0 counts as solved
            break
    assert np.mean(returns[:20]) < 60
    assert np.mean(returns[-20:]) > 195
