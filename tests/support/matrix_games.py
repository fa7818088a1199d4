"""Two-player zero-sum matrix games for algorithms: self-play by one policy that is told its seat."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from agents import Algorithm, Batch, Policy, Trajectory, build_policy

ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
BIASED = np.array([[0.0, -1, 2], [1, 0, -1], [-1, 1, 0]])  # its equilibrium is not uniform


def seats(lanes: int) -> np.ndarray:
    """Return the observations of both seats, one-hot float32 [2 * lanes, 2]: the first seat's, then the second's."""
    return np.repeat(np.eye(2, dtype=np.float32), lanes, axis=0)


def player(payoff: np.ndarray, seed: int, network: dict[str, Any] | None = None) -> Policy:
    """Return a policy, far from uniform, for both seats of a game whose first seat gets payoff[a, b]."""
    assert payoff.shape[0] == payoff.shape[1]
    space = Box(0, 1, (2,), np.float32)
    return build_policy(network or {"hidden_sizes": [], "policy_gain": 1.0}, space, Discrete(len(payoff)), seed)


def learn(algorithm: Algorithm, payoff: np.ndarray, updates: int, lanes: int, seed: int) -> None:
    """Train by self-play: `lanes` games per update, each one decision of both seats."""
    generator, observation, nothing = torch.Generator().manual_seed(seed), seats(lanes), np.zeros(2 * lanes, np.float32)
    for _ in range(updates):
        acted = algorithm.policy.step(observation, generator=generator)
        first, second = acted.action[:lanes], acted.action[lanes:]
        won = payoff[first, second].astype(np.float32)
        batch = Batch(
            [
                Trajectory(
                    observation=observation[None],
                    action=acted.action[None],
                    reward=np.concatenate([won, -won])[None],
                    terminated=np.ones((1, 2 * lanes), np.bool_),
                    truncated=np.zeros((1, 2 * lanes), np.bool_),
                    extras={name: part[None] for name, part in acted.extras.items()},
                    last={"observation": observation, "value": nothing},
                    cut={"value": nothing[None]},
                    version=np.zeros(2 * lanes, np.int64),
                    episodes=np.zeros((0, 2), np.float32),
                )
            ]
        )
        algorithm.update(batch)


def strategies(policy: Policy) -> np.ndarray:
    """Return the policy's mixed strategies, float64 [2, actions], by seat."""
    with torch.no_grad():
        logits = policy.network.step(policy.leaves(seats(1)), {})[0].policy
    assert isinstance(logits, torch.Tensor), "the policy has several heads"
    return torch.softmax(logits.double(), -1).numpy()


def exploitability(payoff: np.ndarray, strategy: np.ndarray) -> float:
    """Return the mean gain of both seats' best responses to `strategy` [2, actions]."""
    return float((payoff @ strategy[1]).max() - (strategy[0] @ payoff).min()) / 2
