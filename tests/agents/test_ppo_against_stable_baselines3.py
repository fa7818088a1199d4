import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

import envs
from agents import build_policy
from agents.algorithms.ppo import PPO, PPOConfig
from workers.rollout.vector_sampler import VectorSampler

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (the `peers` extra)")

STEPS, ENVS = 64, 4


def same_weights(policy, theirs):
    """Warren's weights, one by one, into Stable-Baselines3's policy. Returns the pairs of tensors."""
    ours = policy.network
    layers = [
        *zip(ours.policy_trunk.layers, [*theirs.mlp_extractor.policy_net[::2], theirs.action_net], strict=True),
        *zip(ours.value_trunk.layers, [*theirs.mlp_extractor.value_net[::2], theirs.value_net], strict=True),
    ]
    pairs = [pair for mine, its in layers for pair in ((mine.weight, its.weight), (mine.bias, its.bias))]
    if not isinstance(policy.action_space, Discrete):
        pairs.append((policy.distribution.log_std, theirs.log_std))
    with torch.no_grad():
        for mine, its in pairs:
            its.copy_(mine)
    return pairs


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_update_equals_stable_baselines3s(env_id, monkeypatch):
    vector_env = envs.make_vector(env_id, ENVS, seed=1, max_episode_steps=20)
    policy = build_policy({}, vector_env.single_observation_space, vector_env.single_action_space, seed=1)
    trajectory = VectorSampler(vector_env, policy, seed=1).collect(STEPS)
    assert trajectory.truncated.any()

    settings = {"gamma": 0.98, "gae_lambda": 0.9, "learning_rate": 1e-3}
    config = PPOConfig(**settings, epochs=3, minibatch_size=48, entropy_coefficient=0.01)
    theirs = sb3.PPO(
        "MlpPolicy", sb3.common.env_util.make_vec_env(env_id, ENVS), **settings, n_steps=STEPS, batch_size=48,
        n_epochs=3, ent_coef=0.01, device="cpu", seed=1,
    )  # fmt: skip
    pairs = same_weights(policy, theirs.policy)
    before = torch.cat([its.detach().flatten() for _, its in pairs]).clone()

    # Their buffer, filled as their collect_rollouts fills it: a truncated step's reward includes its future value.
    theirs._setup_learn(STEPS * ENVS)
    buffer = theirs.rollout_buffer
    done = trajectory.terminated | trajectory.truncated
    reward = trajectory.reward + config.gamma * trajectory.cut["value"]
    episode_start = np.ones(ENVS)
    for t in range(STEPS):
        action = trajectory.action[t].reshape(ENVS, -1)
        value, log_prob = torch.tensor(trajectory.extras["value"][t]), torch.tensor(trajectory.extras["log_prob"][t])
        buffer.add(trajectory.observation[t], action, reward[t], episode_start, value, log_prob)
        episode_start = done[t]
    buffer.compute_returns_and_advantage(torch.tensor(trajectory.last["value"]), done[-1])

    # One order of minibatches for both. They flatten environment by environment: place n * T + t is our t * N + n.
    orders = [np.random.default_rng(epoch).permutation(STEPS * ENVS) for epoch in range(3)]
    their_orders = iter(orders)
    monkeypatch.setattr(np.random, "permutation", lambda _: next(their_orders))
    theirs.train()

    algorithm = PPO(policy, config, seed=1)
    our_orders = iter(torch.from_numpy(order % STEPS * ENVS + order // STEPS) for order in orders)
    monkeypatch.setattr(algorithm, "_permutation", lambda _: next(our_orders))
    metrics = algorithm.update([trajectory]).metrics

    after = torch.cat([its.detach().flatten() for _, its in pairs])
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(torch.cat([mine.flatten() for mine, _ in pairs]), after, rtol=0, atol=1e-5)
    logged = theirs.logger.name_to_value
    assert metrics["policy_loss"] == pytest.approx(logged["train/policy_gradient_loss"], abs=1e-4)
    assert metrics["value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-3)
    assert metrics["entropy"] == pytest.approx(-logged["train/entropy_loss"], rel=1e-4)
    assert metrics["clip_fraction"] == pytest.approx(logged["train/clip_fraction"], abs=1e-3)
    assert metrics["explained_variance"] == pytest.approx(float(logged["train/explained_variance"]), abs=1e-3)
