"""CartPole without velocities: an agent has to remember the past (env.id=envs.hidden_velocities:CartPole)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

POSITIONS = [0, 2]  # of CartPole's four numbers, the cart's place and the pole's angle; the others are velocities
ENDS = np.array([2.4, 0.2095], np.float32)  # an episode ends beyond these, in m and rad


class CartPole(gymnasium.ObservationWrapper):
    """CartPole-v1 with only place and angle observed, float32 [2], as shares of those at which an episode ends."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gymnasium.make("CartPole-v1", **kwargs))
        self.observation_space = Box(-2.0, 2.0, (2,), np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        seen: np.ndarray = (observation[POSITIONS] / ENDS).astype(np.float32)
        return seen
