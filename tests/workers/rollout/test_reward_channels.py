"""Tests of rewards with several channels, each with a value head and advantages, from the environment to metrics."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import envs
from agents import Trajectory, build_algorithm, build_policy
from agents.operators.advantages import gae, generalized_advantage
from agents.operators.unrolls import Unroll
from envs import EnvSettings
from warren.errors import ConfigurationError, WireError
from workers.learning.metrics import Progress
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH = 6


class Trade(gymnasium.Env):
    """Action 1 wins a point and takes damage of four; the coefficients say which of them counts."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        reward = {"damage": -4.0 * action, "win": float(action)}
        return self.observation_space.sample(), reward, False, self.steps == LENGTH, {}


def make(coefficients, num_envs=8, network=None, seed=1, **settings):
    given = EnvSettings(f"{__file__}:Trade", reward_channels=coefficients, channel_values=True, **settings)
    vector_env = envs.make_vector(given, num_envs, seed)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    policy = build_policy(network or {"hidden_sizes": [16]}, *spaces, seed, given.value_channels)
    return VectorSampler(vector_env, policy, seed), policy


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trajectory_holds_each_channels_rewards_and_values(workers):
    sampler, policy = make({"win": 1.0, "damage": 0.1}, num_envs=4, workers=workers, reward_scale=0.5, reward_clip=1.0)
    trajectory = Trajectory.from_dict(sampler.collect(2 * LENGTH).to_dict(), policy.spec(returns=2))
    sampler.vector_env.close()
    acted = trajectory.action == 1
    np.testing.assert_allclose(trajectory.reward[..., 0], 0.5 * acted)
    np.testing.assert_allclose(trajectory.reward[..., 1], -1.0 * acted, err_msg="scaled, then clipped")
    for values in (trajectory.extras["value"], trajectory.cut["value"], trajectory.last["value"][None]):
        assert values.shape[-1] == 2
    assert (trajectory.cut["value"][trajectory.truncated] != 0).all()
    assert trajectory.episodes.shape == (8, 4)
    total, length, win, damage = trajectory.episodes.T
    np.testing.assert_allclose(damage, -4 * win)
    np.testing.assert_allclose(total, win + 0.1 * damage, rtol=1e-5)
    assert (length == LENGTH).all()
    with pytest.raises(WireError, match=r"episodes must be float32 \[K, 2\], is \[8, 4\]"):
        Trajectory.from_dict(trajectory.to_dict(), policy.spec())


def test_advantages_are_per_channel_and_both_implementations_agree():
    sampler, _ = make({"win": 1.0, "damage": 0.1})
    t = sampler.collect(20)
    ours = generalized_advantage(
        t.reward, t.extras["value"], t.terminated, t.truncated, t.cut["value"], t.last["value"], 0.9, 0.8
    )
    parts = (t.reward, t.extras["value"], t.terminated, t.truncated, t.cut["value"], t.last["value"])
    np.testing.assert_allclose(ours, gae(Unroll(*map(torch.from_numpy, parts)), 0.9, 0.8), atol=1e-5)
    one = generalized_advantage(
        *(part[..., 1] if part.ndim == 3 else part for part in parts[:-1]), parts[-1][:, 1], 0.9, 0.8
    )
    np.testing.assert_allclose(ours[..., 1], one, atol=1e-6)


@pytest.mark.parametrize("network", [{"hidden_sizes": [16]}, {"hidden_sizes": [16], "normalize_values": True}])
@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "appo"])
def test_coefficients_decide_what_is_learned_and_each_head_learns_its_own_channel(name, network):
    for damage, wanted in ((0.0, 1), (3.0, 0)):  # in units of their deviations both channels are equally large
        sampler, policy = make({"win": 1.0, "damage": damage}, network=network)
        settings = {"learning_rate": 0.03, "gamma": 0.0, "max_grad_norm": 10.0}
        if name in ("ppo", "appo"):
            settings |= {"minibatch_size": 64, "epochs": 2, "learning_rate": 0.01}
        algorithm = build_algorithm(name, settings, policy, 1)
        share, version = 0.5, 0
        while abs(share - wanted) > 0.15:
            assert version < 100, share
            sampler.load(policy.state_dict(), version)
            trajectory = sampler.collect(24)
            algorithm.update([trajectory])
            share, version = trajectory.action.mean(), version + 1
        if wanted:
            win, lost = policy.value(trajectory.last["observation"]).mean(0)
            assert lost < 0 < win


def test_mean_returns_of_channels_are_among_the_metrics():
    progress = Progress()
    assert progress.means() == {}
    progress.add(np.array([[1.0, 5, 2.0, -1.0], [3.0, 5, 4.0, -3.0]], np.float32), 10, ["return_win", "return_damage"])
    assert progress.means() == {"return_win": 3.0, "return_damage": -2.0}
    assert progress.figures()["mean_return"] == 2.0


def test_a_channel_whose_coefficient_is_zero_is_only_counted():
    given = EnvSettings(f"{__file__}:Trade", reward_channels={"win": 1.0, "damage": 0.0})
    vector_env = envs.make_vector(given, 4, 1)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    policy = build_policy({"hidden_sizes": [16]}, *spaces, 1, given.value_channels)
    trajectory = VectorSampler(vector_env, policy, 1).collect(2 * LENGTH)
    np.testing.assert_array_equal(trajectory.reward, trajectory.action)
    total, _, win, damage = trajectory.episodes.T
    assert (total == win).all() and (damage == -4 * win).all() and win.any()


def test_values_of_channels_without_channels_are_refused():
    with pytest.raises(ConfigurationError, match=r"env\.channel_values: it takes several channels"):
        EnvSettings("CartPole-v1", channel_values=True).check()
