"""Payoff cells between frozen players, estimated by play: which cell next, and the games of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from agents.policies import Policy
from envs import TwoPlayerVectorEnv
from league.empirical_game.quantal_response import quantal_response
from league.empirical_game.returns import Returns
from league.empirical_game.solvers import solve_zero_sum
from league.rules.win_rates import Slots

REFRESH = 100  # batches until the mixture that cells are refined for is solved anew


class Player(Protocol):
    """Who can be played: a Policy, or anything that chooses like one."""

    def choose(self, observation: np.ndarray, generator: torch.Generator, action_mask: np.ndarray) -> np.ndarray:
        """observation [N, ...], legal actions bool [N, A] -> action int64 [N]."""


class Uniform:
    """Plays every legal action equally often: the reference that needs no training."""

    def choose(self, observation: np.ndarray, generator: torch.Generator, action_mask: np.ndarray) -> np.ndarray:
        """A legal action each, int64 [N]."""
        chance = torch.rand(action_mask.shape, generator=generator).numpy()
        action: np.ndarray = np.where(action_mask, chance, -1.0).argmax(axis=1)
        return action


def play(
    games: TwoPlayerVectorEnv, first: Player, second: Player, rounds: int, generator: torch.Generator
) -> np.ndarray:
    """Returns of `first`, in seat 0, against `second`, in seat 1: float32 [rounds * N].

    Each slot plays a fixed number of games: stopping at a number of games in all would favour short ones.
    """
    left = np.full(games.num_envs, rounds)
    returns = []
    turn = games.reset()
    games.pop_finished()
    while left.any():
        action = np.empty(games.num_envs, np.int64)
        for seat, policy in enumerate((first, second)):
            rows = np.flatnonzero(turn.to_move == seat)
            if rows.size:
                observation, mask = turn.observation[rows], turn.action_mask[rows]
                action[rows] = policy.choose(observation, generator, mask)
        turn = games.step(action)
        if turn.done.any():
            finished = games.pop_finished()
            counted = left[finished.index] > 0
            returns.append(finished.returns[counted, 0])
            left[finished.index[counted]] -= 1
    return np.concatenate(returns)


class Evaluator:
    """Plays the cells between frozen players that the league's mixture depends on most.

    Every pair is played `least` games in either seating, the older players first: who has met all older ones may be in
    the mixture. From then on the cell with the largest standard error goes
    first, weighted by the shares of its players in the mixture, until each is below `error` or at `most` games.
    """

    def __init__(
        self,
        games: TwoPlayerVectorEnv,
        returns: Returns,
        policy_of: Callable[[int], Policy],
        seed: int,
        rounds: int = 2,
        least: int = 1000,
        most: int = 100_000,
        error: float = 0.02,
        temperature: float = 0.25,
    ) -> None:
        self.games, self.returns = games, returns
        self._policy_of = policy_of
        self._generator = torch.Generator().manual_seed(seed)
        self._rounds, self._least, self._most, self._error = rounds, least, most, error
        self._temperature = temperature
        self._batches = 0
        self._aimed: tuple[int, int, np.ndarray] | None = None

    def mixture(self, slots: Slots) -> np.ndarray:
        """The equilibrium mixture of the players at `slots` on mean returns as they are known: (2, n), a row a seat.

        The first of `slots` up to whom all cells are known are in it; before any is, the first alone. Quantal response
        at `temperature` times the cells' mean standard error; Nash's once that is below `error` / 100, as it is at once
        where games are not left to chance.
        """
        newest = _newest_of(self.returns.games(slots) < self._least)
        known = slots[: max(1, int(newest.min(initial=len(slots))))]
        mixture = np.zeros((2, len(slots)))
        mixture[:, 0] = 1.0
        if len(known) > 1:
            matrix = self.returns.matrix(known)
            temperature = self._temperature * float(self.returns.errors(known).mean())
            if temperature <= self._error / 100.0:
                found = solve_zero_sum(matrix)[0], solve_zero_sum(-matrix.T)[0]
            else:
                found = quantal_response(matrix, temperature)
            mixture[:, : len(known)] = found
        return mixture

    def next_cell(self, slots: Slots) -> tuple[int, int] | None:
        """(slot in seat 0, slot in seat 1) of the cell to play next, None when all are known well enough."""
        games, errors = self.returns.games(slots), self.returns.errors(slots)
        missing = games < self._least
        if missing.any():
            first, second = np.argwhere(missing)[_newest_of(missing).argmin()]
            return int(slots[first]), int(slots[second])
        share = self._aim(slots)
        weight = np.maximum(share[0][:, None], share[1]) + 0.1
        wanted = np.where((errors > self._error) & (games < self._most), errors * weight, 0.0)
        if not wanted.any():
            return None
        first, second = np.unravel_index(wanted.argmax(), wanted.shape)
        return int(slots[first]), int(slots[second])

    def step(self, slots: Slots) -> bool:
        """Play one batch of games of the most useful cell; False when there is none."""
        cell = self.next_cell(slots) if len(slots) else None
        if cell is None:
            return False
        first, second = cell
        found = play(self.games, self._policy_of(first), self._policy_of(second), self._rounds, self._generator)
        self.returns.record(first, second, found)
        self._batches += 1
        return True

    def _aim(self, slots: Slots) -> np.ndarray:
        """(2, n): the mixture that cells are refined for, over its largest share; not the newest, as it costs time."""
        if self._aimed is None or self._aimed[0] != len(slots) or self._batches >= self._aimed[1] + REFRESH:
            mixture = self.mixture(slots)
            self._aimed = (len(slots), self._batches, mixture / mixture.max(axis=1, keepdims=True))
        return self._aimed[2]


def _newest_of(cells: np.ndarray) -> np.ndarray:
    """Of each cell that is True in (n, n): the place of the newer of its two players, (cells,) int64."""
    newest: np.ndarray = np.argwhere(cells).max(axis=1, initial=-1)
    return newest
