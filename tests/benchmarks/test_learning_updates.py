"""Tests of benchmarks.learning: Warren and the peer make equal updates from equal weights and transitions."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import envs
from agents import build_policy
from agents.algorithms import build_algorithm
from agents.trajectories import Trajectory
from benchmarks.apparatus.seeds import composed
from benchmarks.learning.peers import LIBRARIES, settings_of

STEPS, SLOTS, ACTIONS = 3, 64, 2
PEERS = {"cartpole_dqn": "DQN", "cartpole_qrdqn": "QRDQN"}


@pytest.mark.parametrize("experiment", PEERS)
def test_updates_of_dqn_equal_those_of_the_peer_with_the_same_settings(experiment: str) -> None:
    kind = PEERS[experiment]
    library = pytest.importorskip(LIBRARIES[kind], reason="Stable-Baselines3 or sb3-contrib is not installed")
    config = composed([f"experiment={experiment}"])
    peer = getattr(library, kind)("MlpPolicy", gymnasium.make("CartPole-v1"), device="cpu", **settings_of(config))
    peer.set_logger(importlib.import_module("stable_baselines3.common.logger").configure(None, []))
    policy = build_policy(config.network, *envs.spaces(config.env.settings()), 0)
    algorithm: Any = build_algorithm("dqn", config.algorithm, policy, 0)
    of_peer = (peer.quantile_net, peer.quantile_net_target) if kind == "QRDQN" else (peer.q_net, peer.q_net_target)
    quantiles = int(config.algorithm["quantiles"])
    with torch.no_grad():
        for own, its in zip(algorithm.target.parameters(), of_peer[1].parameters(), strict=True):
            its.mul_(1.05)  # the target differs from the learning network
            own.copy_(_of_warren(its, quantiles))
        for own, its in zip(policy.parameters(), of_peer[0].parameters(), strict=True):
            own.copy_(_of_warren(its, quantiles))
    trajectory, samples = _transitions(config.algorithm["gamma"])
    peer.replay_buffer = samples
    for _ in range(20):
        loss = algorithm.update([trajectory]).metrics["value_loss"]
        peer.train(1, SLOTS)
        assert loss == pytest.approx(peer.logger.name_to_value["train/loss"], rel=1e-4)
    for own, its in zip(policy.parameters(), of_peer[0].parameters(), strict=True):
        torch.testing.assert_close(own.detach(), _of_warren(its, quantiles).detach(), rtol=1e-4, atol=1e-5)


def _of_warren(its: torch.Tensor, quantiles: int) -> torch.Tensor:
    """Return a peer's parameter in Warren's order: rows of the last layer are grouped by action, not by quantile."""
    if len(its) != quantiles * ACTIONS:
        return its
    return its.reshape(quantiles, ACTIONS, *its.shape[1:]).transpose(0, 1).reshape(its.shape)


def _transitions(gamma: float) -> tuple[Trajectory, Any]:
    """Return transitions of three steps, some cut short by an end, for Warren, and a peer's replay of the same."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    generator = np.random.default_rng(0)
    observation = generator.normal(size=(STEPS, SLOTS, 4)).astype(np.float32)
    last = generator.normal(size=(SLOTS, 4)).astype(np.float32)
    action = generator.integers(0, ACTIONS, (STEPS, SLOTS))
    reward = generator.normal(1.0, 1.0, (STEPS, SLOTS)).astype(np.float32)
    terminated = np.zeros((STEPS, SLOTS), np.bool_)
    terminated[1, :10] = terminated[2, 10:20] = True
    trajectory = Trajectory(
        observation=observation, action=action, reward=reward, terminated=terminated,
        truncated=np.zeros_like(terminated), extras={}, last={"observation": last}, cut={},
        version=np.zeros(SLOTS, np.int64), episodes=np.zeros((0, 2), np.float32),
    )  # fmt: skip
    trajectory.cuts = np.zeros((0, 2), np.int64), {"observation": last[:0]}
    counts = np.arange(STEPS)[:, None] < np.where(terminated[1], 2, 3)
    total = (gamma ** np.arange(STEPS)[:, None] * counts * reward).sum(0).astype(np.float32)
    discount = np.full(SLOTS, gamma**STEPS, np.float32)
    columns = [torch.as_tensor(column)[:, None] for column in (action[0], terminated.any(0).astype(np.float32), total)]
    of_peer = ReplayBufferSamples(
        torch.as_tensor(observation[0]), columns[0], torch.as_tensor(last), *columns[1:],
        torch.as_tensor(discount)[:, None],
    )  # fmt: skip

    class Samples:
        def sample(self, count: int, env: Any = None) -> Any:
            assert count == SLOTS
            return of_peer

    return trajectory, Samples()
