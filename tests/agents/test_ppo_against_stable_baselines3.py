"""An update of PPO against a record of Stable-Baselines3's, which the library reproduces where it is installed."""

import numpy as np
import pytest
import torch
from support.peer_records import (
    ENV_IDS,
    ENVS,
    EPOCHS,
    MINIBATCH,
    SETTINGS,
    STEPS,
    ppo_policy,
    read,
    sb3_update,
    weights_of,
)

from agents import Trajectory
from agents.algorithms.ppo import PPO, PPOConfig

CLOSE = {
    **{"policy_loss": {"abs": 1e-4}, "value_loss": {"rel": 1e-3}, "entropy": {"rel": 1e-4}},
    **{"clip_fraction": {"abs": 1e-3}, "explained_variance": {"abs": 1e-3}},
}


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_an_update_equals_stable_baselines3s(env_id, monkeypatch):
    record = read(env_id)
    policy = ppo_policy(env_id)
    before = weights_of(record, "before.")
    policy.load_state_dict(before)
    assert record["truncated"].any()
    names = ("observation", "action", "reward", "terminated", "truncated", "version", "episodes")
    trajectory = Trajectory(
        **{name: record[name] for name in names},
        extras={name: record[name] for name in ("log_prob", "value")},
        cut={"value": record["cut"]},
        last={"observation": record["last_observation"], "value": record["last_value"]},
    )
    config = PPOConfig(**SETTINGS, epochs=EPOCHS, minibatch_size=MINIBATCH, entropy_coefficient=0.01)
    algorithm = PPO(policy, config, seed=1)
    # Stable-Baselines3 flattens by environment: its index n * T + t is our t * N + n.
    orders = iter(torch.from_numpy(order % STEPS * ENVS + order // STEPS) for order in record["orders"])
    monkeypatch.setattr(torch, "randperm", lambda *_, **__: next(orders))
    metrics = algorithm.update([trajectory]).metrics
    weights, after = policy.state_dict(), weights_of(record, "after.")
    assert max((after[name] - before[name]).abs().max() for name in after) > 1e-3
    for name, tensor in after.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-5, msg=name)
    for name, within in CLOSE.items():
        assert metrics[name] == pytest.approx(float(record[f"metric.{name}"]), **within)


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_stable_baselines3_reproduces_the_recorded_update(env_id):
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed (the `peers` extra)")
    record = read(env_id)
    for name, array in sb3_update(env_id, record).items():
        np.testing.assert_allclose(array, record[name], rtol=1e-4, atol=1e-5, err_msg=name)
