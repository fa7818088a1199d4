"""A call of model.forward that does not fit the policy is one error, which names the part that does not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from agents import build_policy
from workers.deployment.model_service import _rows
from workers.models.backends import PytorchBackend

BOX = Box(-1, 1, (4,), np.float32)
PARTS = Dict({"eye": BOX, "hand": Discrete(3)})
SEEN = np.zeros((2, 4), np.float32)
HELD = {"hand": np.zeros(2, np.int64)}


def rows(space: Any, *call: Any) -> int:
    network = {"hidden_sizes": [4], "core": {"name": "gru", "size": 3}}
    return _rows(call, PytorchBackend(build_policy(network, space, Discrete(2), 0)))


@pytest.mark.parametrize(
    ("space", "call", "said"),
    [
        (BOX, (SEEN[:, :3], {}), "observation must be float32 [2, 4], is float32 [2, 3]"),
        (BOX, (np.full((1, 4), np.nan), {}), "observation holds nan at [0, 0]; all numbers must be finite"),
        (BOX, (SEEN[0], {}), "observation must be float32 [4, 4], is float32 [4]"),
        (BOX, (None, {}), "observation: it must hold arrays [N, ...] of Box("),
        (PARTS, ({"eye": SEEN}, {}), "observation: it must hold arrays [N, ...] of Dict("),
        (PARTS, ({"eye": SEEN, "hand": np.array([0, 3])}, {}), "observation.hand holds 3 at [1]; it must be within 0 "),
        (BOX, (SEEN, {"policy.h": np.zeros((2, 3), np.float32)}), "memory has no part 'value.h'"),
        (BOX, (SEEN, {"h": np.zeros((1, 3), np.float32)}), "memory has no part 'policy.h'; memory has no part 'value."),
    ],
)
def test_what_does_not_fit_is_named(space: Any, call: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        rows(space, *call)


@pytest.mark.parametrize("memory", [{}, None, {f"{of}.h": np.ones((2, 3), np.float32) for of in ("policy", "value")}])
def test_calls_that_fit_may_hold_more_than_the_policy_sees(memory: Any) -> None:
    assert rows(BOX, SEEN.astype(np.float64), memory) == 2
    assert rows(PARTS, {"eye": SEEN, **HELD, "state": np.zeros((2, 9))}, memory, np.ones((2, 2), np.bool_)) == 2
