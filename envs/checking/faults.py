"""Faults of a single observation, reward or turn, each worded as the end of a sentence about a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np

from envs.rewards import Rewards, WrongReward
from envs.two_player.vector_env import PLAYERS, Turn
from warren.errors import ConfigurationError


def of_observation(space: gymnasium.Space[Any], observation: Any) -> Iterator[str]:
    """Yield what is wrong with an observation: its shape, values that are not finite or not in its space."""
    if not isinstance(space, gymnasium.spaces.Box):
        if not space.contains(observation):
            yield f"gave the observation {observation!r}, which is not in its observation_space {space}"
        return
    try:
        array = np.asarray(observation)
        finite = np.isfinite(array).all()
    except (TypeError, ValueError):
        yield f"gave the observation {observation!r}, which is not an array of numbers"
        return
    if array.shape != space.shape:
        yield f"gave an observation of shape {list(array.shape)}; its observation_space has {list(space.shape)}"
    elif not finite:
        yield f"gave an observation that is not finite: {np.array2string(array, threshold=8)}"


def of_reward(rewards: Rewards, reward: Any) -> Iterator[str]:
    """Yield what is wrong with a reward: not a number, not finite, other channels than declared."""
    if rewards.channels or isinstance(reward, Mapping) or np.size(reward) != 1:
        try:
            reward = np.asarray(rewards.read(reward), np.float64)
        except WrongReward as wrong:
            yield str(wrong)
            return
        except (TypeError, ValueError):
            yield f"gave the reward {reward!r}, which is not of numbers"
            return
    if not isinstance(reward, int | float | np.number | np.ndarray) or not np.isfinite(reward).all():
        yield f"gave the reward {reward!r}"


def of_turn(turn: Turn, games: int, shape: tuple[int, ...], num_actions: int, players: int = PLAYERS) -> Iterator[str]:
    """Yield what is wrong with a turn's arrays: their values, or shapes that differ from the arguments'."""
    expected = {
        "to_move": (games,),
        "observation": (games, *shape),
        "action_mask": (games, num_actions),
        "reward": (games, players),
        "done": (games,),
        "truncated": (games,),
    }
    for name, wanted in expected.items():
        found = np.shape(getattr(turn, name))
        if found != wanted:
            yield f"gave a Turn whose {name} has shape {list(found)}; it must be {list(wanted)}"
            return
    if not np.isin(turn.to_move, range(players)).all():
        known = "0 and 1" if players == PLAYERS else f"0 to {players - 1}"
        yield f"gave a Turn whose to_move is {np.asarray(turn.to_move).tolist()}; players are {known}"
    for name in ("observation", "reward"):
        if not np.isfinite(getattr(turn, name)).all():
            yield f"gave a Turn whose {name} is not finite: {np.array2string(getattr(turn, name), threshold=8)}"
    if not turn.action_mask.any(axis=1).all():
        yield "gave a Turn in which a player to move has no legal action"


def few(numbers: np.ndarray) -> str:
    """Return the first of `numbers` as text."""
    listed = ", ".join(map(str, numbers[:8]))
    return listed if len(numbers) <= 8 else f"{listed}, ..."


def require_none(faults: Iterator[str], env_id: str, doing: str) -> None:
    """Raise ConfigurationError with a sentence for each of `faults`, if there are any."""
    if found := [f"environment {env_id!r}: {doing} {fault}" for fault in faults]:
        raise ConfigurationError(found)
