"""Faults of a single observation, reward or turn, each worded as the end of a sentence about a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from envs.rewards import Rewards, WrongReward
from envs.two_player.vector_env import PLAYERS, Turn
from warren.errors import ConfigurationError

BEGUN = ("observation", "info")  # results of reset()
STEPPED = ("observation", "reward", "terminated", "truncated", "info")  # results of step()


def of_observation(space: gymnasium.Space[Any], observation: Any) -> Iterator[str]:
    """Yield what is wrong with an observation: its shape, values that are not finite or not in its space."""
    if not isinstance(space, gymnasium.spaces.Box):
        if not space.contains(observation):
            yield (
                f"gave the observation {_shown(observation)}, which is not in its observation_space {space}"
                f"{_culprit(space, observation)}"
            )
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


def of_call(given: Any, results: Sequence[str]) -> Iterator[str]:
    """Yield that a call did not give as many values as `results` names, or that the last, its info, is no dict."""
    if not isinstance(given, tuple | list) or len(given) != len(results):
        found = f"{len(given)} values" if isinstance(given, tuple | list) else f"a single value, {_shown(given)}"
        yield f"gave {found}; it must give {len(results)}: {', '.join(results)}"
    elif not isinstance(given[-1], Mapping):
        yield f"gave the info {_shown(given[-1])}, which must be a dict"


def of_reward(rewards: Rewards, reward: Any) -> Iterator[str]:
    """Yield what is wrong with a reward: not a number, not finite, other channels than declared."""
    try:
        if rewards.channels or isinstance(reward, Mapping) or np.shape(reward):  # [1] too: a vector stores numbers
            reward = np.asarray(rewards.read(reward), np.float64)
    except WrongReward as wrong:
        yield str(wrong)
        return
    except (TypeError, ValueError):
        yield f"gave the reward {_shown(reward)}, which is not of numbers"
        return
    if not isinstance(reward, int | float | np.number | np.ndarray) or not np.isfinite(reward).all():
        wanted = "finite numbers" if rewards.channels else "a finite number"
        yield f"gave the reward {_shown(reward)}; it must be {wanted}"


def of_ends(terminated: Any, truncated: Any) -> Iterator[str]:
    """Yield that one of the two is several values."""
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if np.shape(value):
            yield f"gave {name}={_shown(value)}; it must be True or False"


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
        if not isinstance(array := getattr(turn, name), np.ndarray):
            yield f"gave a Turn whose {name} is {_shown(array)}; it must be an array"
            return
        found = np.shape(array)
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


def _culprit(space: gymnasium.Space[Any], observation: Any, path: str = "") -> str:
    """Return a clause that names the first part of an unsuitable observation which is at fault, and why."""
    name = repr(path) if path else "it"
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        inside: dict[Any, gymnasium.Space[Any]] = dict(
            space.spaces if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)
        )
        if isinstance(space, gymnasium.spaces.Tuple) and isinstance(observation, tuple | list):
            observation = dict(enumerate(observation))
        if not isinstance(observation, Mapping):
            return f": {name} is {_shown(observation)}"
        if differing := sorted(map(str, inside.keys() ^ observation.keys())):
            return f": {name} lacks, or has beside its space, {', '.join(differing)}"
        wrong = (key for key, part in inside.items() if not part.contains(observation[key]))
        key = next(wrong, None)
        return "" if key is None else _culprit(inside[key], observation[key], f"{path}/{key}" if path else f"{key}")
    if not path:
        return ""
    array = np.asarray(observation)
    if isinstance(space, gymnasium.spaces.Box):
        if array.shape != space.shape:
            return f": {name} has shape {list(array.shape)} in place of {list(space.shape)}"
        if not np.can_cast(array.dtype, space.dtype):
            return f": {name} is {array.dtype} in place of {space.dtype}"
    return f": {name} is {_shown(observation)}, of {space}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]} ..."


def few(numbers: np.ndarray) -> str:
    """Return the first of `numbers` as text."""
    listed = ", ".join(map(str, numbers[:8]))
    return listed if len(numbers) <= 8 else f"{listed}, ..."


def require_none(faults: Iterator[str], env_id: str, doing: str) -> None:
    """Raise ConfigurationError with a sentence for each of `faults`, if there are any."""
    if found := [f"environment {env_id!r}: {doing} {fault}" for fault in faults]:
        raise ConfigurationError(found)
