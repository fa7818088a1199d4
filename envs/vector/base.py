"""The contract of vector environments, however they are stepped: same-step autoreset, seeds, episodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from envs.construct import blame, copies
from envs.masks import Masks, WrongMask
from envs.rewards import Rewards, WrongReward
from envs.vector.last_infos import WrongInfo, number_in, numbers_in
from warren.errors import ConfigurationError

# In an ended episode's info: a life was lost and the game goes on. The return is counted to the game's end.
LIFE_LOST = "life_lost"


class WrongObservation(ValueError):
    """Raised for an observation of another shape than the space's; says which shape, without the environment's id."""


class WrongResult(ValueError):
    """Raised for results that are not as many, or not of the types, that a call must give; says which they are."""


class Stepped(NamedTuple):
    """Results of one step of a vector's N environments."""

    observation: Any  # [N, ...], owned by the caller; where an episode ended, the next one's first
    reward: np.ndarray  # float64 [N]; [N, C] if the reward has C channels
    terminated: np.ndarray  # bool [N]
    truncated: np.ndarray  # bool [N]
    info: dict[str, Any]  # "final_obs" if an episode ended, and the environments' own entries


class VectorEnv(gymnasium.vector.VectorEnv):
    """N environments of the same spaces; one that ends is reset within the same step.

    Where `terminated | truncated`, the observation returned is the next episode's first, and the ended episode's last
    one is `info["final_obs"][i]`, from which the value of a truncated episode is bootstrapped. If the reward has
    channels, `info["reward_channels"]` holds each of them, float64 [N, C], as the environments gave it.

    `group`: int64 [N], the game of each slot, if several agents learn together in one game; else None. With groups
    `info["valid"]` of reset and step, bool [N], says which slots decide next (many_agents/vector.py).

    `masks`: those of the actions, once a reset has shown that the environments give them; else None. With masks
    `info["action_mask"]` of reset and step is that of the next decision, as policies take it, and
    `info["final_action_mask"]` [N, ...], if an episode was cut off, is that at `info["final_obs"]`.

    `merges_infos`: whether `info` also holds the environments' own infos, merged by key, as gymnasium's vectors do. A
    caller that reads none of them, such as a sampler, sets it False: merging those of eight environments can take
    longer than stepping them. `kept_infos`: names of numbers in an episode's last info that are its figures, beside
    return and length; `keep_infos` sets them.
    """

    merges_infos = True
    kept_infos: Sequence[str] = ()
    masks: Masks | None = None
    group: np.ndarray | None = None

    def __init__(
        self,
        num_envs: int,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        seed: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        rewards: Rewards | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.metadata = {**(metadata or {}), "autoreset_mode": AutoresetMode.SAME_STEP}
        self.rewards = rewards or Rewards()
        self._seed = seed
        # Per game under way: return, length, each channel's return. `_finished`: such rows of ended games, by step,
        # with the numbers of their last infos.
        self._counts = np.zeros((num_envs, 2 + len(self.rewards.channels)), np.float64)
        self._returns, self._lengths = self._counts[:, 0], self._counts[:, 1]
        self._channel_returns = self._counts[:, 2:]
        self._finished: list[np.ndarray] = []

    def keep_infos(self, names: Sequence[str]) -> None:
        """Keep the numbers of these names in each episode's last info, for `pop_episodes`; before the first reset."""
        self.kept_infos = tuple(names)

    @property
    def _copies(self) -> int:
        """Return the number of seeds that a reset takes."""
        return self.num_envs

    @abstractmethod
    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Return (observation [N, ...], info) of new episodes; if a seed is None, the generator goes on."""

    @abstractmethod
    def _step(self, actions: Any) -> Stepped:
        """Step each environment once."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode in all; return (observation, info). Copy i gets `seed + i`, or the i-th of a sequence.

        The first call without a seed uses the constructor's.
        """
        if seed is None:
            seed = self._seed
        self._seed = None
        seeds: Sequence[int | None]
        if seed is None:
            seeds = [None] * self._copies
        elif isinstance(seed, Sequence):
            seeds = seed
        else:
            seeds = [seed + i for i in range(self._copies)]
        if len(seeds) != self._copies:
            raise ValueError(f"{len(seeds)} seeds for {self._copies} environments")
        self._counts[:] = 0
        return self._reset(seeds, options)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return observation [N, ...], reward f64 [N] to learn from, terminated and truncated bool [N], and info."""
        stepped = self._step(actions)
        total = self.rewards.total(stepped.reward)
        if self.rewards.channels:
            stepped.info["reward_channels"] = stepped.reward
            self._channel_returns += stepped.reward
        self._count(total, stepped)
        reward = self.rewards.learned_from(total)
        return stepped.observation, reward, stepped.terminated, stepped.truncated, stepped.info

    def _count(self, total: np.ndarray, stepped: Stepped) -> None:
        """Add a step with these rewards [N] to the games under way, and finish those that ended."""
        self._returns += total
        self._lengths += 1
        done = stepped.terminated | stepped.truncated
        if "final_info" in stepped.info:
            done &= ~np.asarray(stepped.info["final_info"].get(LIFE_LOST, False))
        (ended,) = done.nonzero()
        if len(ended):
            last = stepped.info.get("final_info", {})
            kept = [numbers_in(last, name, ended) for name in self.kept_infos]
            self._finished.append(np.column_stack([self._counts[ended], *kept]))
            self._counts[ended] = 0

    def returns_so_far(self) -> np.ndarray:
        """Return float64 [N, 2]: return and length so far of the games under way."""
        return self._counts[:, :2].copy()

    def pop_episodes(self) -> np.ndarray:
        """Return float32 [K, 2 + C + M]: return and length of every game finished since the last call, oldest first.

        The return is of the environment's own rewards: neither scaled nor clipped, over all lives, channels weighted.
        The C columns after them are each channel's own return, unweighted, the last M the numbers of `kept_infos`.
        """
        finished, self._finished = self._finished, []
        none = np.empty((0, self._counts.shape[1] + len(self.kept_infos)))
        return np.concatenate([none, *finished]).astype(np.float32)

    def _read_at_end(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is read of an episode's last info, also if infos are not merged. Raises WrongInfo."""
        if LIFE_LOST in info:  # the game goes on, and its last info is still to come
            return {LIFE_LOST: info[LIFE_LOST]}
        return {name: number_in(info, name) for name in self.kept_infos}


def no_final_observations(num_envs: int) -> np.ndarray:
    """Return an object array [N], all None, into which `info["final_obs"]` is filled."""
    return np.empty(num_envs, dtype=object)


def stacked(space: gymnasium.Space[Any], observations: Sequence[Any] | np.ndarray) -> Any:
    """Return K single observations of `space`, such as those in `info["final_obs"]`, as an array [K, ...] or a tree."""
    batch: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, batch)


class blaming(blame):
    """Turn an error inside an environment's `call` into a ConfigurationError that names it, the line and the copy."""

    def __init__(self, env_id: str, call: str) -> None:
        super().__init__(f"environment {env_id!r}: {call}")

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, WrongObservation | WrongResult | WrongReward | WrongMask | WrongInfo):
            raise ConfigurationError(f"{self.doing} {error}{copies(error)}") from error
        super().__exit__(kind, error, trace)
