"""Whole episodes, of one agent or several together, by the likeliest actions, from the same seeds every time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import envs
from agents.policies import Policy
from envs.many_agents.vector import OVER
from envs.masks import KEY
from envs.vector.base import blaming
from warren.errors import WarrenError

logger = logging.getLogger(__name__)

LONGEST = 200_000  # steps of an episode; one that has not ended by then is counted with its return so far


class Interrupted(WarrenError):
    """Raised when the playing of episodes is given up."""


class Episodes:
    """`count` episodes of an environment, played by several copies side by side.

    Only the first episode of each copy after a reset counts: otherwise short episodes would count more often than long.
    """

    def __init__(self, settings: envs.EnvSettings, count: int, copies: int, seed: int) -> None:
        """Make the environment, at most `copies` times; episode i begins with the seed `seed` + i."""
        self.count, self._seed = count, seed
        self._copies = min(count, copies)
        whole = replace(settings.resolved(), episodic_life=False, workers=min(settings.workers, self._copies))
        self._env = envs.make_vector(whole, self._copies, seed)
        self._env.merges_infos = False
        self._figures = len(settings.figures)
        self._resetting, self._stepping = (blaming(settings.id, call) for call in ("reset()", "step()"))

    def play(self, policy: Policy, over: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Return float64 [count, 2 + F]: each episode's return, by the environment's own rewards, its length, and the F
        figures that its settings name (EnvSettings.figures), 0 where it did not end.

        Raises Interrupted once `over()`, and ConfigurationError for what the environment raises.
        """
        played = np.concatenate([self._round(policy, first, over) for first in range(0, self.count, self._copies)])
        return played[: self.count]

    def _round(self, policy: Policy, first: int, over: Callable[[], bool]) -> np.ndarray:
        """Play the episodes from `first` on, one for each copy."""
        env, seed = self._env, self._seed + first
        with self._resetting:
            observation, info = env.reset(seed=[seed + i for i in range(self._copies)])
        memory = policy.initial_memory(env.num_envs)
        env.pop_episodes()
        found, going = np.zeros((self._copies, 2 + self._figures)), np.ones(self._copies, bool)
        for _ in range(LONGEST):
            if over():
                raise Interrupted("the evaluation was given up")
            mask = info[KEY] if env.masks is not None else None
            action, memory = policy.act(observation, memory, "greedy", mask)
            with self._stepping:
                observation, _, terminated, truncated, info = env.step(policy.env_action(action))
            ended = terminated | truncated
            over_now = ended if env.group is None else info[OVER]
            if over_now.any():
                slots, episodes = np.flatnonzero(over_now), env.pop_episodes()  # in the order of the slots
                counted = going[slots]
                found[slots[counted]] = episodes[counted]
                going[slots] = False
                if not going.any():
                    return found
            if memory:
                memory = policy.begin(memory, ended)
        logger.warning("%d episodes of an evaluation did not end within %d steps", int(going.sum()), LONGEST)
        found[going, :2] = env.returns_so_far()[going]
        return found

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
