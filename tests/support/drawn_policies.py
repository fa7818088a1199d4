"""Random policies."""

from __future__ import annotations

import numpy as np

from envs.large.game import PolicyFunction


def drawn(seed: int) -> PolicyFunction:
    """Return the random policy of a seed; its probabilities depend on the observation alone."""
    rows = np.random.default_rng(seed).normal(size=(4096, 32))

    def policy(observation: np.ndarray, action_mask: np.ndarray) -> np.ndarray:
        flat = observation.reshape(len(observation), -1)
        logits = np.sin(flat @ rows[: flat.shape[1], : action_mask.shape[1]]) * 4.0
        weights = np.where(action_mask, np.exp(logits), 0.0)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    return policy
