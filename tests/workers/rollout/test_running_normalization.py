"""Tests of moments that normalise observations, values and rewards: their source, their transfer, their effect."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import envs
from agents import build_algorithm, build_policy, checkpoints
from warren.errors import ConfigurationError
from workers.rollout.vector_sampler import VectorSampler

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[3]
NAMES = ["ppo", "a2c", "impala", "appo", f"{ROOT / 'examples/algorithms/reinforce.py'}:build"]
BOTH = {"hidden_sizes": [16], "normalize_observations": True, "normalize_values": True}
LENGTH = 8


class Scales(gymnasium.Env):
    """An input of thousandths names the right action; one of thousands is noise. Rewards are large."""

    observation_space = Dict({"far": Box(-np.inf, np.inf, (2,), np.float64), "kind": Discrete(3)})
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def observe(self):
        self.wanted = int(self.np_random.integers(2))
        far = np.array([self.wanted / 1000, self.np_random.normal(5000, 1000)])
        return {"far": far, "kind": int(self.np_random.integers(3))}

    def step(self, action):
        self.steps += 1
        reward = 1000.0 * (action == self.wanted)
        return self.observe(), reward, self.steps == LENGTH, False, {}


def make(network, num_envs=16, seed=1):
    vector_env = envs.make_vector(f"{__file__}:Scales", num_envs, seed)
    spaces = vector_env.single_observation_space, vector_env.single_action_space
    learning, acting = (build_policy(network, *spaces, seed) for _ in range(2))
    return VectorSampler(vector_env, acting, seed), learning


def update(algorithm, sampler, version=0):
    sampler.load(algorithm.policy.state_dict(), version)
    trajectory = sampler.collect(32)
    algorithm.update([trajectory])
    return trajectory


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.rpartition("/")[2])
def test_a_learners_moments_are_those_of_all_observations_that_it_learned_from(name, tmp_path):
    sampler, policy = make(BOTH, num_envs=4)
    algorithm = build_algorithm(name, {}, policy, 1)
    seen = [update(algorithm, sampler, version).observation["far"] for version in range(3)]
    whole = np.concatenate(seen).reshape(-1, 2).astype(np.float64)
    moments = policy.network.observations[0]
    assert moments.count == len(whole) == 3 * 32 * 4
    np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-6)
    np.testing.assert_allclose(moments.variance, whole.var(0), rtol=1e-6)
    assert policy.network.values.count == len(whole)
    assert sampler.policy.network.observations[0].count == 2 * 32 * 4, "an actor only reads moments"

    sampler.load(checkpoints.weights_from_bytes(checkpoints.weights_to_bytes(policy, {}))[0], 3)
    checkpoint = checkpoints.load(checkpoints.save(tmp_path, "one", policy, algorithm, {}))
    _, restored = make(BOTH, num_envs=4)
    checkpoints.restore(restored, build_algorithm(name, {}, restored, 2), checkpoint)
    far = {"far": np.array([[0.001, 4000.0]]), "kind": np.array([1])}
    for other in (sampler.policy, restored):
        np.testing.assert_array_equal(other.value(far), policy.value(far))


def test_the_first_minibatch_of_an_update_sees_observations_as_actors_did():
    sampler, policy = make(BOTH)
    algorithm = build_algorithm("ppo", {"epochs": 1, "minibatch_size": 10_000}, policy, 1)
    for version in range(3):
        sampler.load(policy.state_dict(), version)
        assert algorithm.update([sampler.collect(16)]).metrics["approx_kl"] == pytest.approx(0, abs=1e-6)


def test_a_value_stays_the_same_when_its_units_change():
    _, policy = make(BOTH)
    observation = {"far": np.array([[0.0, 1.0], [0.5, -2.0]]), "kind": np.array([0, 2])}
    before = policy.value(observation)
    policy.network.values.update(torch.randn(100, 1) * 50 + 300)
    assert not np.allclose(policy.value(observation), before)
    _, other = make(BOTH)
    other.take_in(other.leaves({name: leaf[:0] for name, leaf in observation.items()}), torch.randn(100) * 50 + 300)
    assert other.value_scale == pytest.approx(50, rel=0.3)
    np.testing.assert_allclose(other.value(observation), before, atol=1e-3)


def reached(network, settings, enough, updates):
    sampler, policy = make(network)
    algorithm = build_algorithm("ppo", {"minibatch_size": 128, "epochs": 4, "gamma": 0.0, **settings}, policy, 1)
    share = 0.0
    for version in range(updates):
        share = 0.7 * share + 0.3 * update(algorithm, sampler, version).reward.mean() / 1000
        if share > enough:
            return version + 1
    return None


def test_observations_of_wild_scales_are_learned_from_only_when_normalized():
    updates = reached({"hidden_sizes": [16], "normalize_observations": True}, {"scale_rewards": True}, 0.85, 150)
    assert updates is not None
    assert reached({"hidden_sizes": [16]}, {"scale_rewards": True}, 0.75, updates) is None


def test_values_are_learned_in_their_own_units_however_large_rewards_are():
    unexplained = []
    for network in (BOTH, {**BOTH, "normalize_values": False}):
        sampler, policy = make(network)
        algorithm = build_algorithm("ppo", {"minibatch_size": 128, "epochs": 4, "gamma": 0.5}, policy, 1)
        for version in range(8):
            trajectory = update(algorithm, sampler, version)
        unexplained.append(abs(policy.value(trajectory.last["observation"]).mean() - 1000))
    assert unexplained[0] < 600 < unexplained[1]


def test_checkpoints_keep_the_deviation_of_returns_that_scales_rewards():
    sampler, policy = make(BOTH)
    algorithm = build_algorithm("a2c", {"scale_rewards": True, "gamma": 0.5}, policy, 1)
    trajectory = sampler.collect(32)
    (scaled,) = algorithm.scaled([trajectory])
    sums = np.zeros_like(trajectory.reward)
    for t in range(32):
        goes_on = ~trajectory.terminated[t - 1] if t else False
        sums[t] = trajectory.reward[t] + 0.5 * np.where(goes_on, sums[t - 1], 0)
    np.testing.assert_allclose(scaled.reward, trajectory.reward / sums.std(), rtol=1e-4)
    other = build_algorithm("a2c", {"scale_rewards": True}, policy, 2)
    other.load_state(*algorithm.state())
    assert (
        torch.equal(other.rewards.moments.variance, algorithm.rewards.moments.variance)
        and other.rewards.moments.count == 512
    )


def test_wrong_settings_of_normalisation_are_refused_by_name():
    with pytest.raises(ConfigurationError, match=r"observation_clip=0.0 of a network must be above 0"):
        make({"observation_clip": 0.0})
    own = f"{ROOT / 'examples/networks/residual.py'}:build"
    with pytest.raises(ConfigurationError, match=r"give it a method value_layer\(\)"):
        build_policy({"name": own, "normalize_values": True}, Box(-1, 1, (3,), np.float32), Discrete(2), 1)
