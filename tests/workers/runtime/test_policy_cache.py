"""Tests of frozen models in memory: those played lately, within a bound of bytes."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from gymnasium.spaces import Box, Discrete

from agents import Policy, build_policy
from agents.checkpoints import load_weights, weights_from_bytes, weights_to_bytes
from league.matchmaking.view import ModelRef
from workers.runtime.policy_cache import FrozenPolicies, weight


def build(seed: int) -> Policy:
    network = {"hidden_sizes": [64, 64]}
    return build_policy(network, Box(-1, 1, (8,), np.float32), Discrete(4), seed)


def loaded(model: ModelRef, data: bytes) -> Policy:
    policy = build(0)
    load_weights(policy, weights_from_bytes(data)[0], str(model))
    return policy


class Pool:
    """A pool of any models, all with the same weights."""

    def __init__(self) -> None:
        self.read: list[ModelRef] = []
        self._data = weights_to_bytes(build(1), {})

    def get(self, player: str, version: int) -> Any:
        self.read.append(ModelRef(player, version))
        return SimpleNamespace(data=bytes(self._data))


def test_the_least_recently_used_policies_are_unloaded_but_ten_stay() -> None:
    pool = Pool()
    kept = FrozenPolicies(pool, loaded, kept_bytes=15 * weight(build(0)))  # type: ignore[arg-type]
    for version in range(15):
        kept[ModelRef("main", version)]
    kept[ModelRef("main", 0)]
    kept[ModelRef("main", 15)]
    assert len(kept) == 15 and len(pool.read) == 16
    kept[ModelRef("main", 0)]
    assert len(pool.read) == 16, "it was used lately"
    kept[ModelRef("main", 1)]
    assert len(pool.read) == 17, "it was unloaded"
    large = FrozenPolicies(pool, loaded, kept_bytes=1)  # type: ignore[arg-type]
    for version in range(12):
        large[ModelRef("main", version)]
    assert len(large) == 10


def test_a_thousand_frozen_models_take_hardly_more_memory_than_ten(one_thread: None) -> None:
    base = build(0)
    # A copy is quicker to make than a policy.
    kept = FrozenPolicies(Pool(), lambda model, data: copy.deepcopy(base))  # type: ignore[arg-type]
    process = psutil.Process()
    for version in range(10):
        kept[ModelRef("main", version)]
    before = process.memory_info().rss
    for version in range(1000):
        kept[ModelRef("main", version)]
    assert process.memory_info().rss < 1.05 * before
