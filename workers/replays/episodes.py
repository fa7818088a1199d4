"""Recorded episodes of any player, as files and other programs hold them: observations, actions and rewards.

    recorder = EpisodeRecorder("CartPole-v1", policy.learning_space, policy.action_space)
    recorder.decided(observation, action)
    recorder.earned(reward)
    recorder.end()
    write(path, recorder.episodes())
    read(path)

A file is safetensors: arrays with the decisions of all episodes one after the other, and a line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from agents.spaces import SpaceTree
from envs.masks import Masks
from warren.errors import ReplayError
from warren.files import write_whole

SUFFIX = ".safetensors"
HEADER, FORMAT = "warren", 1
PARTS = ("observation", "action")  # each of their leaves is an array
ARRAYS = {"reward", "ends", "action_mask"}  # beside them; the last is optional


@dataclass(frozen=True)
class Episodes:
    """S decisions of E whole episodes, one after the other; leaves are named as in agents.spaces, a single one "".

    Actions are as the environment takes them. `source`: for messages.
    """

    observation: Mapping[str, np.ndarray]  # leaf -> [S, ...]: before each decision
    action: Mapping[str, np.ndarray]  # leaf -> [S, ...]
    reward: np.ndarray  # float32 [S]: all that followed a decision until the next one, or the episode's end
    ends: np.ndarray  # int64 [E]: the number of decisions up to the end of each episode
    action_mask: np.ndarray | None  # bool [S, A], rows of envs.masks.Masks: legal actions; None if all always are
    env: str  # the environment's id, "" if it is not known
    source: str

    @property
    def starts(self) -> np.ndarray:
        """Return the index of each episode's first decision, int64 [E]."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    @property
    def returns(self) -> np.ndarray:
        """Return the undiscounted return of each episode, float64 [E]."""
        return np.add.reduceat(self.reward.astype(np.float64), self.starts)

    def first(self, count: int) -> Episodes:
        """Return the first `count` episodes, or all if there are fewer."""
        stop = int(self.ends[min(count, len(self.ends)) - 1])
        return Episodes(
            {name: leaf[:stop] for name, leaf in self.observation.items()},
            {name: leaf[:stop] for name, leaf in self.action.items()},
            self.reward[:stop],
            self.ends[:count],
            None if self.action_mask is None else self.action_mask[:stop],
            self.env,
            self.source,
        )


@dataclass
class EpisodeRecorder:
    """Collects the decisions of one episode after the other; those of an unfinished episode are left out."""

    env: str
    observations: gymnasium.Space[Any]
    actions: gymnasium.Space[Any]
    _rows: list[tuple[Any, Any, Any]] = field(default_factory=list)  # observation, action, mask
    _masks: Masks = field(init=False)
    _rewards: list[float] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._masks = Masks(self.actions)

    def decided(self, observation: Any, action: Any, action_mask: Any = None) -> None:
        """Add a decision; its values are elements of the spaces, `action_mask` is as the environment gives it."""
        self._rows.append((observation, action, None if action_mask is None else self._masks.row(action_mask)))
        self._rewards.append(0.0)

    def earned(self, reward: float) -> None:
        """Add a reward that followed the last decision."""
        self._rewards[-1] += reward

    def end(self) -> None:
        """End the episode after its last decision."""
        self._ends.append(len(self._rows))

    @property
    def count(self) -> int:
        """Return the number of episodes that have ended."""
        return len(self._ends)

    def episodes(self, source: str = "") -> Episodes:
        """Return the episodes that have ended. Raises ReplayError if none has."""
        if not self._ends:
            raise ReplayError(f"{source or 'the recording'} holds no episode that was played to its end")
        rows = self._rows[: self._ends[-1]]
        seen, done, masks = zip(*rows, strict=True)
        return Episodes(
            _leaves(SpaceTree(self.observations, "observation"), seen),
            _leaves(SpaceTree(self.actions, "action"), done),
            np.array(self._rewards[: len(rows)], np.float32),
            np.array(self._ends, np.int64),
            None if masks[0] is None else np.stack(masks),
            self.env,
            source,
        )


def _leaves(tree: SpaceTree, values: Iterable[Any]) -> dict[str, np.ndarray]:
    """Return leaf name -> array [S, ...] of S values of a space."""
    flat = [{"": value} if tree.bare else tree.flatten(value) for value in values]
    return {name: np.stack([np.asarray(one[name]) for one in flat]) for name in tree.leaves}


def write(path: Path, episodes: Episodes) -> None:
    """Write a file of episodes, replacing it as a whole. Raises OSError."""
    arrays = {f"{part}.{name}": leaf for part in PARTS for name, leaf in getattr(episodes, part).items()}
    arrays |= {"reward": episodes.reward, "ends": episodes.ends}
    if episodes.action_mask is not None:
        arrays["action_mask"] = episodes.action_mask
    header = {"format": FORMAT, "env": episodes.env}
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_whole(path, safetensors.numpy.save(whole, {HEADER: json.dumps(header)}))


def read(path: Path) -> Episodes:
    """Read a file of episodes. Raises ReplayError for any other file."""
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads(file.metadata()[HEADER])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a dict)
        if header["format"] != FORMAT:
            raise ValueError(f"it is of format {header['format']}, and this version reads {FORMAT}")
        parts: dict[str, dict[str, np.ndarray]] = {part: {} for part in PARTS}
        for name in arrays.keys() - ARRAYS:
            part, _, leaf = name.partition(".")
            parts[part][leaf] = arrays[name]
        found = Episodes(
            **parts, reward=arrays["reward"], ends=arrays["ends"], action_mask=arrays.get("action_mask"),
            env=str(header["env"]), source=str(path),
        )  # fmt: skip
    except FileNotFoundError:
        raise ReplayError(f"there is no file {path}") from None
    except (SafetensorError, OSError, LookupError, ValueError, TypeError) as error:
        raise ReplayError(f"{path} is not a file of recorded episodes: {error}") from None
    check(found)
    return found


def check(found: Episodes) -> None:
    """Raise ReplayError for arrays that do not fit each other."""
    steps, ends = len(found.reward), found.ends
    if found.reward.ndim != 1 or ends.ndim != 1 or ends.dtype.kind != "i":
        raise ReplayError(
            f"{found.source} is damaged: reward must be [decisions] and ends int64 [episodes], they are "
            f"{found.reward.dtype} {list(found.reward.shape)} and {ends.dtype} {list(ends.shape)}"
        )
    lengths = {len(leaf) for part in PARTS for leaf in getattr(found, part).values()}
    lengths |= set() if found.action_mask is None else {len(found.action_mask)}
    if not steps or lengths != {steps} or not len(ends) or ends[-1] != steps or (np.diff(ends, prepend=0) < 1).any():
        raise ReplayError(f"{found.source} is damaged: its arrays are not those of the same episodes")
