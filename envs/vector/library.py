"""Environments that gymnasium itself wrote as arrays (`vector_entry_point`), if they play like their plain form.

Each adapter adds two things to the library's class: a seed and a generator of its own for each copy, as in the plain
environments, and a reset within the step that ends an episode. A test compares every entry of the table with the plain
form, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.utils import seeding

from envs.rewards import Rewards
from envs.settings import EnvSettings
from envs.vector.arrays import name_of, objection
from envs.vector.base import Stepped, VectorEnv, no_final_observations

START = 0.05  # CartPole's episodes begin with all four numbers uniform within this of zero
STARTS = 16  # starts that each copy draws at once


class LibraryCartPole(VectorEnv):
    """gymnasium's CartPoleVectorEnv, with float64 [4, N] as its state, like the plain one's [4]."""

    KWARGS = ("max_episode_steps", "sutton_barto_reward")

    def __init__(
        self, env_id: str, num_envs: int, seed: int | None, kwargs: Mapping[str, Any], rewards: Rewards
    ) -> None:
        env = gymnasium.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **kwargs)
        assert isinstance(env, CartPoleVectorEnv)
        self._env: Any = env  # its attributes have the types from before the first reset
        self._chance = [seeding.np_random()[0] for _ in range(num_envs)]
        self._starts = np.empty((num_envs, STARTS, 4))  # drawn ahead: a call of a generator takes as long as a step
        self._next = np.full(num_envs, STARTS)
        spaces = (env.single_observation_space, env.single_action_space)
        super().__init__(num_envs, *spaces, seed, env.metadata, rewards)

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        for i, seed in enumerate(seeds):
            if seed is not None:
                self._chance[i], _ = seeding.np_random(seed)
                self._next[i] = STARTS
        self._env.reset()
        self._env.state = self._start(np.arange(self.num_envs))
        return self._env.state.T.astype(np.float32), {}

    def _step(self, actions: Any) -> Stepped:
        env = self._env
        observation, reward, terminated, truncated, _ = env.step(actions)
        info: dict[str, Any] = {}
        (ended,) = env.prev_done.nonzero()  # those that ended in this step: the library would reset them in the next
        if len(ended):
            final = no_final_observations(self.num_envs)
            for i, last in zip(ended, observation[ended], strict=True):
                final[i] = last
            info = {"final_obs": final, "_final_obs": env.prev_done.copy()}
            env.state[:, ended] = self._start(ended)
            observation[ended] = env.state[:, ended].T
            env.steps[ended] = 0
            env.prev_done[:] = False
        return Stepped(observation, reward.astype(np.float64), terminated, truncated, info)

    def _start(self, copies: np.ndarray) -> np.ndarray:
        """Return the start of new episodes of these copies, float64 [4, K], from their own generators."""
        for i in copies[self._next[copies] == STARTS]:
            self._starts[i] = self._chance[i].uniform(-START, START, (STARTS, 4))
            self._next[i] = 0
        starts: np.ndarray = self._starts[copies, self._next[copies]]
        self._next[copies] += 1
        return starts.T

    def close_extras(self, **kwargs: Any) -> None:
        """Close the library's vector."""
        self._env.close()


# Ids whose vectorised form plays like the plain one -> its class here.
SAME_DYNAMICS = {"CartPole-v0": LibraryCartPole, "CartPole-v1": LibraryCartPole}
# Other ids that gymnasium vectorised -> why that form is not used.
NOT_THE_SAME = {
    "phys2d/CartPole-v0": "written in JAX, which is not among Warren's packages",
    "phys2d/CartPole-v1": "written in JAX, which is not among Warren's packages",
    "phys2d/Pendulum-v0": "written in JAX, which is not among Warren's packages",
}


def unfit(settings: EnvSettings) -> str | None:
    """Return why the library's vectorised form cannot replace the environment; None if it can."""
    name = name_of(settings)
    if name not in SAME_DYNAMICS:
        return f"environment {settings.id!r} has none that is known to play the same; those that have: " + ", ".join(
            sorted(SAME_DYNAMICS)
        )
    return objection(settings, SAME_DYNAMICS[name].KWARGS)


def make(settings: EnvSettings, num_envs: int, seed: int | None) -> VectorEnv:
    """Return the vector of an environment to which `unfit` has no objection."""
    name = name_of(settings)
    given = {key: value for key, value in settings.kwargs.items() if value is not None}
    return SAME_DYNAMICS[name](name, num_envs, seed, given, settings.rewards())
