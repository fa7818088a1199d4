"""Random actions for checks: only legal ones if the environment gives masks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from envs.masks import KEY, Masks, WrongMask
from envs.vector.base import VectorEnv, stacked
from warren.errors import ConfigurationError


class RandomActions:
    """Draws actions of one environment; `follow` reads the info that comes with each observation.

    `row`: bool [choices], which are legal in the next decision; None if the environment gives no masks.
    """

    def __init__(self, env_id: str, space: gymnasium.Space[Any], masked: bool = True) -> None:
        self._id, self._space = env_id, space
        self._masks = Masks.of(space) if masked else None
        self._first = True
        self.row: np.ndarray | None = None

    def follow(self, info: Any, doing: str) -> None:
        """Read the mask in `info`, if the first reset gave one. Raises ConfigurationError."""
        if self._first:
            self._first = False
            if not isinstance(info, dict) or KEY not in info:
                self._masks = None
        if self._masks is None:
            return
        try:
            if not isinstance(info, dict) or KEY not in info:
                raise WrongMask(f"gave no {KEY} in its info, which reset() gave; give one with each observation")
            self.row = self._masks.row(info[KEY])
        except WrongMask as wrong:
            raise ConfigurationError(f"environment {self._id!r}: {doing} {wrong}") from None

    def draw(self) -> Any:
        """Return a random action, drawn by the space's own generator."""
        if self._masks is None or self.row is None:
            return self._space.sample()
        return self._masks.draw(self._space, self.row)


def of_vector(vector: VectorEnv, info: dict[str, Any]) -> Any:
    """Return a random action of each environment of a vector whose reset or step gave `info`."""
    if vector.masks is None:
        return vector.action_space.sample()
    space, masks = vector.single_action_space, vector.masks
    return stacked(space, [masks.draw(space, row) for row in masks.rows(info[KEY])])
