"""A gateway's errors for observations and masks that do not fit the actor's spaces name the part and the number."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from agents.trees import spec_of
from workers.gateway.game import read

BYTES = Box(0, 255, (2,), np.uint8)
PAIR = Tuple([Box(-1, 1, (2,), np.float32), Discrete(3)])


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (BYTES, [300, 0], "observation holds 300 at [0], which is no uint8"),
        (BYTES, [0, 0.5], "observation holds 0.5 at [1], which is no uint8"),
        (BYTES, [0, 0, 0], "observation must be uint8 [2], is uint8 [3]"),
        (BYTES, [[0], [0, 1]], "observation: no array can be made of it: "),
        (Dict({"a": BYTES}), {"a": [[0], [0, 1]]}, "observation.a: no array can be made of it: "),
        (PAIR, [[0, 0]], "observation must have 2 parts, has 1"),
        (PAIR, [[0, 0], 1, 2], "observation must have 2 parts, has 3"),
        (PAIR, [[0, 0], 1.5], "observation.1 holds 1.5 at [], which is no int64"),
        (MultiBinary(3), [0, 1, 2], "observation holds 2 at [2]; it must be within 0 and 1"),
        (MultiDiscrete([3, 4]), [2, 4], "observation holds 4 at [1]; it must be within 0 and 3"),
        (MultiDiscrete([[3, 4], [5, 6]]), [[2, 3], [5, 5]], "observation holds 5 at [1, 0]; it must be within 0 and 4"),
    ],
)
def test_what_does_not_fit_is_named(space: Any, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(said)):
        read(spec_of(space), value, "observation")


@pytest.mark.parametrize("space", [BYTES, PAIR, MultiBinary(3), MultiDiscrete([3, 4]), MultiDiscrete([[3, 4], [5, 6]])])
def test_every_element_of_a_space_is_read(space: Any) -> None:
    space.seed(1)
    for _ in range(20):
        read(spec_of(space), space.sample(), "observation")
