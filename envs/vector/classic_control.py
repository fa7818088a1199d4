"""gymnasium's classic control in C (classic_control.c), if it can be compiled: many copies of a game at a time.

A test compares every entry of GAMES with the plain form, step by step. Each copy draws its starts from its own
generator, as the plain environments do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding

from envs.rewards import Rewards
from envs.settings import EnvSettings
from envs.vector.arrays import name_of, objection
from envs.vector.base import Stepped, VectorEnv, no_final_observations
from warren.compiled import Compiled

COMPILED = Compiled(Path(__file__).with_name("classic_control.c"), {"reset_all": None, "step_all": ctypes.c_int64})
STARTS = 16  # starts that each copy draws at once: a call of a generator takes longer than a step


@dataclass(frozen=True)
class Game:
    """A game of classic_control.c, its range of starts, and the one option that gymnasium has for it."""

    kind: int  # number in the enumeration of classic_control.c
    size: int  # numbers of a state
    high: Sequence[float]  # a start's first numbers are uniform between `low` and these, the rest are 0
    low: Sequence[float]
    option: str | None = None  # its name in env.kwargs
    default: float = 0.0  # that of the option
    float32: bool = False  # starts are rounded to float32


_CARTPOLE = Game(0, 4, (0.05,) * 4, (-0.05,) * 4, "sutton_barto_reward")
GAMES = {
    "CartPole-v0": _CARTPOLE,
    "CartPole-v1": _CARTPOLE,
    "Acrobot-v1": Game(1, 4, (0.1,) * 4, (-0.1,) * 4, float32=True),
    "MountainCar-v0": Game(2, 2, (-0.4,), (-0.6,), "goal_velocity"),
    "MountainCarContinuous-v0": Game(3, 2, (-0.4,), (-0.6,), "goal_velocity"),
    "Pendulum-v1": Game(4, 2, (pi, 1.0), (-pi, -1.0), "g", 10.0),
}


class _Classic(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "copies", "limit", "size", "seen", "ahead")),
        ("option", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("state", "steps", "starts", "next")),
    ]


class ClassicControl(VectorEnv):
    """Copies of one of GAMES."""

    def __init__(
        self, env_id: str, num_envs: int, seed: int | None, kwargs: Mapping[str, Any], rewards: Rewards
    ) -> None:
        plain = gymnasium.make(env_id, **kwargs)  # for its spaces and its limit
        assert plain.spec is not None
        super().__init__(num_envs, plain.observation_space, plain.action_space, seed, plain.metadata, rewards)
        game = self._game = GAMES[env_id]
        self._library: Any = COMPILED.library()
        self._chance = [seeding.np_random()[0] for _ in range(num_envs)]
        self._shape = num_envs, int(np.prod(plain.observation_space.shape or ()))
        self._state = np.zeros((num_envs, game.size))
        self._steps = np.zeros(num_envs, np.int64)
        self._starts = np.zeros((num_envs, STARTS, game.size))
        self._next = np.full(num_envs, STARTS)
        self._actions = int(plain.action_space.n) if isinstance(plain.action_space, Discrete) else 0
        option = game.default if game.option is None else float(kwargs.get(game.option, game.default))
        arrays = self._state, self._steps, self._starts, self._next
        self._classic = _Classic(
            game.kind, num_envs, plain.spec.max_episode_steps or 0, game.size, self._shape[1], STARTS, option,
            *(array.ctypes.data for array in arrays),
        )  # fmt: skip
        self._at = ctypes.byref(self._classic)
        plain.close()

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        for i, seed in enumerate(seeds):
            if seed is not None:
                self._chance[i], _ = seeding.np_random(seed)
                self._next[i] = STARTS
        self._draw_starts()
        observation = np.empty(self._shape, np.float32)
        self._library.reset_all(self._at, _place(observation))
        self._draw_starts()
        return observation, {}

    def _step(self, actions: Any) -> Stepped:
        copies = self.num_envs
        given = np.ascontiguousarray(actions, np.int64 if self._actions else np.float32)
        if given.size != copies:
            raise ValueError(f"{given.size} actions for {copies} environments")
        observations = np.empty((2, *self._shape), np.float32)
        reward, ends = np.empty(copies), np.empty((2, copies), np.bool_)
        places = (_place(array) for array in (observations, reward, ends))
        ended = self._library.step_all(self._at, _place(given), ctypes.c_int64(self._actions), *places)
        (observation, last), (terminated, truncated) = observations, ends
        if ended < 0:
            raise ValueError(f"action {given[-1 - ended]} of copy {-1 - ended} is not in {self.single_action_space}")
        info: dict[str, Any] = {}
        if ended:
            self._draw_starts()
            done = terminated | truncated
            final = no_final_observations(copies)
            for i in np.flatnonzero(done).tolist():
                final[i] = last[i]
            info = {"final_obs": final, "_final_obs": done}
        return Stepped(observation, reward, terminated, truncated, info)

    def _draw_starts(self) -> None:
        """Draw the next starts of those copies that have used up theirs."""
        game = self._game
        for i in np.flatnonzero(self._next == STARTS).tolist():
            drawn = self._chance[i].uniform(game.low, game.high, (STARTS, len(game.low)))
            self._starts[i, :, : len(game.low)] = drawn.astype(np.float32) if game.float32 else drawn
            self._next[i] = 0


def unfit(settings: EnvSettings) -> str | None:
    """Return why an environment cannot be stepped in C; None if it can."""
    name = name_of(settings)
    if name not in GAMES:
        return f"environment {settings.id!r} is not one of those that are written in C: " + ", ".join(sorted(GAMES))
    if not str(gymnasium.spec(name).entry_point).startswith("gymnasium.envs.classic_control."):
        return f"environment {settings.id!r} is registered as another than gymnasium's"
    return objection(settings, ("max_episode_steps", GAMES[name].option)) or COMPILED.lacking()


def make(settings: EnvSettings, num_envs: int, seed: int | None) -> VectorEnv:
    """Return the vector of an environment to which `unfit` has no objection."""
    name = name_of(settings)
    given = {key: value for key, value in settings.kwargs.items() if value is not None}
    return ClassicControl(name, num_envs, seed, given, settings.rewards())


def _place(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
