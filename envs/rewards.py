"""The treatment of an environment's rewards before learning: channels, then scale, then clip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class WrongReward(ValueError):
    """Raised for a reward without the declared channels; describes the reward, without the environment's id."""


@dataclass(frozen=True)
class Rewards:
    """`channels`: name -> coefficient, for an environment whose reward is several numbers, in their order."""

    channels: Mapping[str, float] = field(default_factory=dict)
    scale: float = 1.0
    clip: float | None = None

    def empty(self, num_envs: int) -> np.ndarray:
        """Return an array for the environments' rewards, float64 [N], or [N, C] with C channels."""
        return np.empty((num_envs, len(self.channels)) if self.channels else num_envs, np.float64)

    def read(self, reward: Any) -> Any:
        """Return one environment's reward as a row of `empty`, by name of a dict, else in order. Raises WrongReward."""
        if isinstance(reward, Mapping):
            if reward.keys() != self.channels.keys():
                raise WrongReward(f"gave rewards named {', '.join(map(str, reward)) or 'nothing'}; {self._wanted()}")
            return [reward[name] for name in self.channels]
        if np.shape(reward) != (len(self.channels),):
            raise WrongReward(f"gave the reward {reward!r}; {self._wanted()}")
        return reward

    def _wanted(self) -> str:
        if not self.channels:
            return "it must be one number; several are declared: +env.reward_channels={NAME: COEFFICIENT, ...}"
        return f"env.reward_channels declares {', '.join(self.channels)}"

    def total(self, given: np.ndarray) -> np.ndarray:
        """Return the sum of each environment's channels, weighted by their coefficients, float64 [N]."""
        return given @ np.fromiter(self.channels.values(), np.float64) if self.channels else given

    def learned_from(self, total: np.ndarray) -> np.ndarray:
        """Return `total`, scaled and then clipped to -clip .. clip, float64 [N]."""
        scaled = total if self.scale == 1.0 else total * self.scale
        return scaled if self.clip is None else np.clip(scaled, -self.clip, self.clip)
