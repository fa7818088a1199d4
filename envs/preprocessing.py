"""Preprocessing of episodes and observations by gymnasium's wrappers, in one fixed order.

The order is leave_out, frame_skip, noop_start, grey, resize, episodic_life, frame_stack. For games of the Arcade
Learning Environment the second to fifth are done by gymnasium's AtariPreprocessing, which reads grey screens from the
emulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error, wrappers
from gymnasium.spaces import Box, Dict

from envs.construct import pip
from envs.settings import EnvSettings
from envs.vector.base import LIFE_LOST
from warren.errors import ConfigurationError, unknown_name
from warren.user_code import requirement

NOOP = "NOOP"


def preprocessed(env: gymnasium.Env, settings: EnvSettings) -> gymnasium.Env:
    """Return `env` preprocessed by `settings`. Raises ConfigurationError that lists all settings that do not fit it."""
    settings = settings.resolved()
    if settings.leave_out:
        env = without(env, settings.leave_out, settings.id)
    if problems := list(_unfit(env, settings)):
        raise ConfigurationError(problems)
    skip, noops = settings.frame_skip or 1, settings.noop_start or 0
    try:
        if is_atari(env) and (skip > 1 or noops or settings.grey or settings.resize):
            shape = env.observation_space.shape or ()
            env = wrappers.AtariPreprocessing(
                env,
                noops,
                skip,
                settings.resize or (shape[1], shape[0]),
                grayscale_obs=bool(settings.grey) or len(shape) == 2,
            )
        else:
            if skip > 1:
                env = wrappers.MaxAndSkipObservation(env, skip)
            if noops:
                env = NoopStart(env, noops)
            if settings.grey:
                env = wrappers.GrayscaleObservation(env)
            if settings.resize:
                env = wrappers.ResizeObservation(env, (settings.resize, settings.resize))
    except error.DependencyNotInstalled:
        raise ConfigurationError(
            f"environment {settings.id!r}: images are resized by OpenCV, which is missing; install it with Warren's "
            f"extra: {pip()} install {requirement('atari')}"
        ) from None
    if settings.episodic_life:
        env = EpisodicLife(env)
    if (stack := settings.frame_stack or 1) > 1:
        env = wrappers.FrameStackObservation(env, stack)
    return env


def without(env: gymnasium.Env, keys: Sequence[str], env_id: str) -> gymnasium.Env:
    """Return `env` with observations that lack `keys`. Raises ConfigurationError if one is not a key, or if all are."""
    space = env.observation_space
    if not isinstance(space, Dict):
        raise ConfigurationError(
            f"env.leave_out: it takes observations that are a Dict; those of {env_id!r} are {space}; leave it out"
        )
    if unknown := [key for key in keys if key not in space.spaces]:
        raise ConfigurationError([f"env.leave_out: {unknown_name('key', key, space.spaces)}" for key in unknown])
    left = [key for key in space.spaces if key not in keys]
    if not left:
        raise ConfigurationError(f"env.leave_out: {list(keys)} leaves nothing to observe of {env_id!r}; keep a key")
    return wrappers.FilterObservation(env, left)


def is_atari(env: gymnasium.Env) -> bool:
    """Return True if the Arcade Learning Environment plays it."""
    return hasattr(env.unwrapped, "ale")


def _unfit(env: gymnasium.Env, settings: EnvSettings) -> Iterator[str]:
    space = env.observation_space
    if not isinstance(space, Box):
        for name in ("frame_skip", "grey", "resize", "frame_stack"):
            if _is_on(settings, name):
                yield f"env.{name}: it takes observations that are a Box; those of {settings.id!r} are {space}"
    else:
        for name in ("frame_skip", "grey", "resize"):
            if _is_on(settings, name) and not _is_image(space):
                yield (
                    f"env.{name}: it takes images (uint8, 0 to 255, [height, width] or [height, width, 3]); the "
                    f"observations of {settings.id!r} are {space.dtype} {list(space.shape)}; leave it out"
                )
    if settings.noop_start and _meanings(env)[:1] != [NOOP]:
        yield f"env.noop_start: {settings.id!r} has no action 0 that does nothing (get_action_meanings()); leave it out"
    if settings.episodic_life and _lives(env) is None:
        yield (
            f"env.episodic_life: {settings.id!r} does not say how many lives are left (by an attribute `lives`); "
            "leave it out"
        )
    if is_atari(env) and settings.frame_skip and getattr(env.unwrapped, "_frameskip", 1) != 1:
        yield (
            f"env.frame_skip: {settings.id!r} skips frames by itself (frameskip={env.unwrapped._frameskip}); "  # type: ignore[attr-defined]
            "leave out env.kwargs.frameskip"
        )


def _is_on(settings: EnvSettings, name: str) -> bool:
    value = getattr(settings, name)
    return bool(value) and (value > 1 or name not in ("frame_skip", "frame_stack"))


def _is_image(space: Box) -> bool:
    return (
        space.dtype == np.uint8
        and (len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[-1] == 3))
        and bool(np.all(space.low == 0) and np.all(space.high == 255))
    )


def _meanings(env: gymnasium.Env) -> list[str]:
    ask = getattr(env.unwrapped, "get_action_meanings", None)
    return list(ask()) if ask else []


def _lives(env: gymnasium.Env) -> int | None:
    """Return the lives left, from the emulator or from the environment's own `lives`, a number or a method."""
    emulator = getattr(env.unwrapped, "ale", env.unwrapped)
    lives = getattr(emulator, "lives", None)
    return None if lives is None else int(lives() if callable(lives) else lives)


class NoopStart(gymnasium.Wrapper):
    """Begins each episode with 1 to `most` steps of action 0, by the environment's own generator (Mnih et al. 2015)."""

    def __init__(self, env: gymnasium.Env, most: int) -> None:
        super().__init__(env)
        self.most = most

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(1, self.most + 1))):
            observation, _, terminated, truncated, more = self.env.step(0)
            info.update(more)
            if terminated or truncated:
                observation, info = self.env.reset(options=options)
        return observation, info


class EpisodicLife(gymnasium.Wrapper):
    """Ends an episode when a life is lost; the next continues the same game, with action 0 (Mnih et al. 2015).

    gymnasium's own `terminal_on_life_loss` begins a new game instead, so that only the first life is ever seen.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.lives, self.goes_on = 0, False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = _lives(self.env) or 0
        self.goes_on = 0 < lives < self.lives and not terminated and not truncated
        self.lives = lives
        if self.goes_on:
            return observation, reward, True, False, {**info, LIFE_LOST: True}
        return observation, reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        over = True
        if self.goes_on and seed is None:
            observation, _, terminated, truncated, info = self.env.step(0)
            over = terminated or truncated
        if over:
            observation, info = self.env.reset(seed=seed, options=options)
        self.lives, self.goes_on = _lives(self.env) or 0, False
        return observation, info
