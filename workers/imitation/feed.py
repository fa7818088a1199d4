"""Trajectories for updates, made of recorded games, in another order in each pass over them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import torch

from agents.algorithms.bc import RETURN
from agents.networks import Memory
from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.trees import take
from workers.imitation.data import Games


class Feed:
    """Trajectories of about `size` decisions of the `chosen` games int64 [K], each pass in an order drawn by `seed`.

    A policy without a memory gets decisions in any order, T = 1. A policy with a memory gets stretches of `length`
    decisions, T = `length`. A slot plays one game after the other, and each stretch begins with the policy's memory at
    that point. The last stretches of a pass are filled up with games drawn anew.
    """

    def __init__(
        self,
        games: Games,
        chosen: np.ndarray,
        policy: Policy,
        size: int,
        length: int,
        seed: int,
        returns: np.ndarray | None = None,
    ) -> None:
        """Take `returns`, float32 [S], which the value function learns for each decision; None: it does not learn."""
        self._games, self._chosen, self._policy, self._seed, self._returns = games, chosen, policy, seed, returns
        self.decisions = len(games.decisions(chosen))
        self._last = np.zeros(len(games.decisions(np.arange(len(games.ends)))), np.bool_)
        self._last[games.ends - 1] = True
        self._length, self._slots = length, max(1, size // length)
        stretch = self._length * self._slots
        if policy.has_memory:
            self.updates, self.steps = -(-self.decisions // stretch), -(-self.decisions // stretch) * stretch
        else:
            self.updates, self.steps = -(-self.decisions // size), self.decisions

    def of_pass(self, number: int, skipped: int = 0) -> Iterator[Trajectory]:
        """Yield the trajectories of a pass except the first `skipped`: `self.updates` less `skipped`.

        A whole pass has `self.steps` steps. Skipped trajectories still pass through the policy's memory.
        """
        order = np.random.default_rng([self._seed, number])
        if self._policy.has_memory:
            yield from self._stretches(order, skipped)
            return
        places = order.permutation(self._games.decisions(self._chosen))
        for part in np.array_split(places, self.updates)[skipped:]:
            yield self._trajectory(part[None], {})

    def _stretches(self, order: np.random.Generator, skipped: int) -> Iterator[Trajectory]:
        policy = self._policy
        memory, left = policy.initial_memory(self._slots), [np.zeros(0, np.int64)] * self._slots
        waiting: deque[int] = deque()
        for number in range(self.updates):
            for slot in range(self._slots):
                while len(left[slot]) < self._length:
                    if not waiting:
                        waiting.extend(order.permutation(self._chosen).tolist())
                    left[slot] = np.concatenate([left[slot], self._games.decisions(np.array([waiting.popleft()]))])
            places = np.stack([one[: self._length] for one in left], axis=1)
            left = [one[self._length :] for one in left]
            trajectory = self._trajectory(places, memory)
            memory = self._after(trajectory, memory)  # by the weights before the update, like an actor's
            if number >= skipped:
                yield trajectory

    def _after(self, trajectory: Trajectory, memory: Memory) -> Memory:
        policy, over = self._policy, trajectory.terminated
        begins = torch.from_numpy(np.concatenate([np.zeros_like(over[:1]), over[:-1]])).to(policy.device)
        with torch.no_grad():
            memory = policy.remember(policy.leaves(trajectory.observation), memory, begins)
        return policy.begin(memory, over[-1])

    def _trajectory(self, places: np.ndarray, memory: Memory) -> Trajectory:
        """Return the decisions at `places` int64 [T, N]; `memory`: the policy's before each slot's first decision."""
        games, over = self._games, self._last[places]
        return Trajectory(
            observation=take(games.observation, places),
            action=take(games.action, places),
            reward=np.zeros(places.shape, np.float32),
            terminated=over,
            truncated=np.zeros_like(over),
            extras={} if self._returns is None else {RETURN: self._returns[places]},
            last={},
            cut={},
            version=np.zeros(places.shape[1], np.int64),
            episodes=np.zeros((0, 2), np.float32),
            memory={name: part.cpu().numpy() for name, part in memory.items()},
            action_mask=None if games.action_mask is None else take(games.action_mask, places),
        )


def returns_to_go(reward: np.ndarray, ends: np.ndarray, gamma: float) -> np.ndarray:
    """Return the discounted sum of the rewards from each decision to its game's end, float32 [S]."""
    following, found, over = 0.0, [], np.zeros(len(reward), np.bool_)
    over[ends - 1] = True
    for own, last in zip(reversed(reward.tolist()), reversed(over.tolist()), strict=True):
        following = own + (0.0 if last else gamma * following)
        found.append(following)
    return np.array(found[::-1], np.float32)
