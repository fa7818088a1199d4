"""Environments stepped one after another in this process, which works for any environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector.utils import iterate

from envs.checking import faults
from envs.masks import FINAL, KEY, Masks, WrongMask
from envs.rewards import Rewards
from envs.vector.base import (
    Stepped,
    VectorEnv,
    WrongObservation,
    WrongResult,
    no_final_observations,
    stacked,
)


class SyncVectorEnv(VectorEnv):
    """Steps and returns the same as gymnasium's class of this name, with less work around each step.

    gymnasium's passive checker stays: it checks only the first two steps, and costs one function call after that.
    """

    def __init__(
        self,
        make: Sequence[Callable[[], gymnasium.Env]],
        seed: int | None = None,
        rewards: Rewards | None = None,
        first: int = 0,
        of: int | None = None,
        masked: bool = True,
    ) -> None:
        """`first`, `of`: the number of the first of these copies, among how many in a larger vector.

        `masked`: look for masks of legal actions in the infos.
        """
        self.envs = [each() for each in make]
        one = self.envs[0]
        for i, env in enumerate(self.envs):
            for what in ("observation_space", "action_space"):
                if (ours := getattr(env, what)) != (wanted := getattr(one, what)):
                    raise ValueError(
                        f"the {what.replace('_', ' ')}s of the copies differ: copy 0 has {wanted}, copy {i} {ours}"
                    )
        super().__init__(len(self.envs), one.observation_space, one.action_space, seed, one.metadata, rewards)
        self.render_mode = one.render_mode
        # Looked up once, not in every step.
        self._each = iterate.dispatch(type(self.action_space))
        self._box = isinstance(one.observation_space, Box)
        self._dtype, self._batch_shape = one.observation_space.dtype, self.observation_space.shape
        self._slots = range(self.num_envs)
        self._first, self._of = first, of or self.num_envs
        self._masks = Masks.of(self.single_action_space) if masked else None  # None: there are no masks

    def _reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        observations: list[Any] = []
        infos: dict[str, Any] = {}
        rows: np.ndarray | None = None
        i = 0
        try:
            for i, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
                observation, info = env.reset(seed=seed, options=options)
                observations.append(observation)
                if i == 0 and self._masks is not None:
                    self.masks = self._masks if KEY in info else None
                    rows = None if self.masks is None else np.empty((self.num_envs, self.masks.size), np.bool_)
                if rows is not None:
                    rows[i] = self._mask_in(info)
                if info and self.merges_infos:
                    infos = self._add_info(infos, info, i)
        except Exception as error:
            error.add_note(self._copy(i))
            raise
        if self.masks is not None and rows is not None:
            infos[KEY] = self.masks.tree(rows)
        return self._batch(observations), infos

    def _step(self, actions: Any) -> Stepped:
        observations: list[Any] = []
        rewards, read = self.rewards.empty(self.num_envs), self.rewards.read
        channels, merges = bool(self.rewards.channels), self.merges_infos
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        final: np.ndarray | None = None
        final_rows: np.ndarray | None = None
        masks = self.masks
        rows = None if masks is None else np.empty((self.num_envs, masks.size), np.bool_)
        i, given, begun = 0, None, None
        try:
            for i, env, action in zip(self._slots, self.envs, self._each(self.action_space, actions), strict=True):
                given = begun = None
                given = env.step(action)
                observation, reward, ended, cut, info = given
                rewards[i] = read(reward) if channels else reward
                if ended or cut:
                    terminated[i], truncated[i] = ended, cut
                    if final is None:
                        final = no_final_observations(self.num_envs)
                    final[i] = deepcopy(observation)  # some environments write each observation to the same array
                    if masks is not None and not ended:
                        final_rows = (
                            np.ones((self.num_envs, masks.size), np.bool_) if final_rows is None else final_rows
                        )
                        final_rows[i] = masks.row_at_end(info.get(KEY))
                    last = self._read_at_end(info)
                    if merges or last:
                        infos = self._add_info(infos, {"final_info": {**info, **last} if merges else last}, i)
                    begun = env.reset()
                    observation, info = begun
                observations.append(observation)
                if rows is not None:
                    rows[i] = self._mask_in(info)
                if merges and info:
                    infos = self._add_info(infos, info, i)
        except Exception as error:
            self._raise_wrong_result(i, error, given, begun)
            error.add_note(self._copy(i))
            raise
        if final is not None:
            infos["final_obs"], infos["_final_obs"] = final, terminated | truncated
        if masks is not None and rows is not None:
            infos[KEY] = masks.tree(rows)
            if final_rows is not None:
                infos[FINAL] = masks.tree(final_rows)
        return Stepped(self._batch(observations), rewards, terminated, truncated, infos)

    def _raise_wrong_result(self, i: int, error: Exception, given: Any, begun: Any) -> None:
        """Raise WrongResult if what copy i gave, by step() and the reset() after it, was the cause of `error`."""
        wrong: list[str] = []
        if given is not None:
            wrong = list(faults.of_call(given, faults.STEPPED))
            if not wrong:
                wrong = [*faults.of_reward(self.rewards, given[1]), *faults.of_ends(*given[2:4])]
        if begun is not None and not wrong:
            wrong = [f"began an episode by a reset() that {fault}" for fault in faults.of_call(begun, faults.BEGUN)]
        if wrong:
            found = WrongResult("; ".join(wrong))
            found.add_note(self._copy(i))
            raise found from error

    def _mask_in(self, info: dict[str, Any]) -> np.ndarray:
        assert self.masks is not None
        if KEY not in info:
            raise WrongMask(f"gave no {KEY} in its info, which others had; give one with each observation")
        return self.masks.row(info[KEY])

    def _batch(self, observations: list[Any]) -> Any:
        """Return one array [N, ...], or a tree of such; it is new, so that a caller that keeps it need not copy."""
        if not self._box:
            return self._stacked(observations)
        try:
            batch = np.array(observations, self._dtype)
        except (ValueError, TypeError):  # shapes differ, or it is not an array
            batch = None
        if batch is not None and batch.shape == self._batch_shape:
            return batch
        return self._one_by_one(observations)

    def _stacked(self, observations: list[Any]) -> Any:
        """Return `stacked`. Raises WrongObservation, naming the copy, for one that is not in its space."""
        space = self.single_observation_space
        try:
            return stacked(space, observations)
        except Exception as error:
            for i, observation in enumerate(observations):
                if wrong := next(faults.of_observation(space, observation), None):
                    found = WrongObservation(wrong)
                    found.add_note(self._copy(i))
                    raise found from error
            raise

    def _one_by_one(self, observations: list[Any]) -> np.ndarray:
        """Stack observations that NumPy cannot stack at once. Raises WrongObservation, naming the copy."""
        space = self.single_observation_space
        assert isinstance(space, Box)
        batch = np.empty((self.num_envs, *space.shape), space.dtype)
        for i, observation in enumerate(observations):
            if np.shape(observation) != space.shape:  # else numpy would broadcast a smaller one over the row
                wrong = WrongObservation(
                    f"gave an observation of shape {list(np.shape(observation))}; its observation_space has "
                    f"{list(space.shape)}"
                )
                wrong.add_note(self._copy(i))
                raise wrong
            batch[i] = observation
        return batch

    def _copy(self, i: int) -> str:
        return f"copy {self._first + i} of {self._of}"

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        for env in self.envs:
            env.close()
