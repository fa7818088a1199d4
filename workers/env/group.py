"""One group of environments: its calls to an actor, and its steps by the answers."""

from __future__ import annotations

from typing import Any

import numpy as np

import envs
from agents.trees import Spec, cast, not_finite, problems, spec_of
from envs.masks import FINAL
from envs.masks import KEY as MASK
from envs.vector.base import blaming, stacked
from warren import formats
from warren.errors import ConfigurationError
from warren.trees import Tree, leaves, map_tree

STAMP = formats.stamp(formats.MESSAGES)


class Group:
    """N environments stepped together; `name` is unique. The loop that uses it:

    while True:
        group.step(answer to group.call())

    Raises ConfigurationError for errors of the environment.
    """

    def __init__(self, name: str, settings: envs.EnvSettings, num_envs: int, seed: int) -> None:
        self.name = name
        self.env = envs.make_vector(settings, num_envs, seed)
        self.env.merges_infos = False
        self._id, self._channels = settings.id, bool(settings.value_channels)
        self._spec: Spec = spec_of(self.env.single_observation_space)
        self._decision = 0  # number of the decision that is asked for next
        self._outcome: dict[str, Any] | None = None
        self._memory: dict[str, np.ndarray] | None = None
        self._stepping = blaming(self._id, "step()")
        with blaming(self._id, "reset()"):
            observation, info = self.env.reset()
        self._take(observation, info)

    @property
    def steps(self) -> int:
        """The number of steps of each environment so far."""
        return self._decision

    def call(self) -> dict[str, Any]:
        """Return the call to make (rollout/served/sampler.py); it stays the same until the next `step`."""
        return {
            "group": self.name,
            "step": self._decision,
            "observation": self._observation,
            "action_mask": self._mask,
            "outcome": self._outcome,
            "memory": self._memory,
            "written_by": STAMP,
        }

    def step(self, answer: dict[str, Any]) -> None:
        """Step the environments by the actor's answer."""
        env = self.env
        with self._stepping:
            observation, reward, terminated, truncated, info = env.step(answer["action"])
        if self._channels:
            reward = env.rewards.learned_from(info["reward_channels"])
        cut = None
        if truncated.any():
            (slots,) = np.nonzero(truncated & ~terminated)
            if len(slots):
                last = self._travelling(stacked(env.single_observation_space, info["final_obs"][slots]))
                legal = None if env.masks is None else map_tree(lambda part: part[slots], info[FINAL])
                cut = (slots, last, legal)
        self._outcome = {
            "reward": self._finite("reward", np.asarray(reward, np.float32)),
            "terminated": np.array(terminated, np.bool_),
            "truncated": np.array(truncated, np.bool_),
            "cut": cut,
            "episodes": env.pop_episodes(),
        }
        self._take(observation, info)
        self._memory = answer.get("memory")
        self._decision += 1

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def _take(self, observation: Tree, info: dict[str, Any]) -> None:
        self._observation = self._travelling(observation)
        self._mask = None if self.env.masks is None else map_tree(np.ascontiguousarray, info[MASK])

    def _travelling(self, observation: Tree) -> Tree:
        seen = self._finite("observation", cast(self._spec, observation))
        if wrong := problems(self._spec, seen, next(leaves(seen))[1].shape[:1], "observation"):
            raise ConfigurationError(f"environment {self._id!r}: step() left its observation_space: {wrong[0]}")
        return seen

    def _finite(self, field: str, tree: Tree) -> Tree:
        if wrong := next(not_finite(tree, field), None):
            raise ConfigurationError(f"environment {self._id!r}: step() gave wrong numbers: {wrong}")
        return tree
