"""Environments that do nothing, for the pipeline's own cost: CartPole's spaces, episodes of 200 steps."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

LENGTH = 200
SLOW, WAITING = 0.02, 0.5  # s


class NullVectorEnv(gymnasium.vector.VectorEnv):
    """All copies begin and end together."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self._observation = np.zeros((num_envs, 4), np.float32)
        self._reward, self._no = np.ones(num_envs), np.zeros(num_envs, np.bool_)
        self._steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the one observation."""
        self._steps = 0
        return self._observation, {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all copies alike, whatever the actions."""
        self._steps += 1
        if self._steps < LENGTH:
            return self._observation, self._reward, self._no, self._no, {}
        self._steps = 0
        final = np.empty(self.num_envs, object)
        final[:] = list(self._observation)
        return self._observation, self._reward, ~self._no, self._no, {"final_obs": final}


class SlowVectorEnv(NullVectorEnv):
    """Environments that step elsewhere: all copies answer 20 ms after the action, without using this processor."""

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step 20 ms later."""
        time.sleep(SLOW)
        return super().step(actions)


class WaitingVectorEnv(NullVectorEnv):
    """Environments that answer half a second after the action, so that a run does nothing but wait."""

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step half a second later."""
        time.sleep(WAITING)
        return super().step(actions)
