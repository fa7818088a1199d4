"""Payoff cells between frozen players, estimated by play: the choice of the next cell, and its games.

Cells worth playing can change the mixture (league.empirical_game.restricted_game): those of members, and of others
against it, until no player outside can gain. Each is played until its any-time interval is below `error`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from agents.networks import Memory
from agents.policies import ActionBatch, Policy, SlotMemory
from envs import TwoPlayerVectorEnv
from league.empirical_game.mixture import MixtureSettings
from league.empirical_game.restricted_game import gain_interval
from league.empirical_game.returns import Returns
from league.rules.win_rates import Slots
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig
from workers.rollout.games.game_log import GameLog, Recording

logger = logging.getLogger(__name__)

REFRESH = 100  # batches until what is worth playing is planned anew
WANTED = 16  # cells that are played before a plan is made anew with what they say
OFFERED = 64  # cells, the most useful first, of which the first that nobody else plays is taken

Cell = tuple[int, int]  # slot in seat 0, slot in seat 1


class Player(Protocol):
    """A Policy, or anything that steps like one."""

    def initial_memory(self, n: int) -> Memory: ...

    def step(
        self,
        observation: np.ndarray,
        memory: Memory,
        mode: str = "sample",
        action_mask: np.ndarray | None = None,
        *,
        generator: torch.Generator | None = None,
        value: bool = True,
        noise: np.ndarray | None = None,
    ) -> ActionBatch: ...


class Uniform:
    """Plays every legal action equally often: the reference that needs no training."""

    def initial_memory(self, n: int) -> Memory:
        return {}

    def step(
        self,
        observation: np.ndarray,
        memory: Memory,
        mode: str = "sample",
        action_mask: np.ndarray | None = None,
        *,
        generator: torch.Generator | None = None,
        value: bool = True,
        noise: np.ndarray | None = None,
    ) -> ActionBatch:
        """Return a legal action for each observation, int64 [N]."""
        assert action_mask is not None
        chance = torch.rand(action_mask.shape, generator=generator).numpy() if noise is None else noise
        return ActionBatch(np.where(action_mask, chance, -1.0).argmax(axis=1), {}, memory)


def play(
    games: TwoPlayerVectorEnv,
    first: Player,
    second: Player,
    rounds: int,
    generator: torch.Generator,
    recording: Recording | None = None,
) -> np.ndarray:
    """Play, and return the returns of `first`, in seat 0, against `second`, in seat 1: float32 [rounds * N].

    Each slot plays a fixed number of games: stopping at a number of games in all would favour short ones. `recording`:
    all games are added to it.
    """
    left = np.full(games.num_envs, rounds)
    returns = []
    turn = games.reset()
    games.pop_finished()
    memories = [SlotMemory(player.initial_memory(games.num_envs)) for player in (first, second)]
    log = None if recording is None else GameLog(games, recording.seed)
    while left.any():
        action = np.empty(games.num_envs, np.int64)
        for seat, player in enumerate((first, second)):
            rows = np.flatnonzero(turn.to_move == seat)
            if rows.size:
                observation, mask = turn.observation[rows], turn.action_mask[rows]
                memory = memories[seat].of(rows)
                noise = None if log is None else log.noise(rows)
                acted = player.step(
                    observation, memory, action_mask=mask, generator=generator, value=False, noise=noise
                )
                action[rows] = acted.action
                memories[seat].keep(rows, acted.memory)
        if log is not None and recording is not None:
            log.moved(action, recording.weights)
        turn = games.step(action)
        if turn.done.any():
            finished = games.pop_finished()
            for slots in memories:
                slots.begin(finished.index)
            counted = left[finished.index] > 0
            returns.append(finished.returns[counted, 0])
            left[finished.index[counted]] -= 1
            if log is not None and recording is not None:
                kept = log.pop(finished, np.zeros(len(counted), np.int64), counted)
                recording.games += [game for game in kept if game is not None]
    return np.concatenate(returns)


class Recorder(Protocol):
    """Keeps the games of some batches: evaluation.batch_recorder of an evaluator of a run."""

    def begins(self, first: int) -> Recording | None:
        """Return a recording for the batch that begins, with slot `first` in seat 0; None for no recording."""

    def ended(self, first: int, second: int, recording: Recording) -> None:
        """Keep the recording of a batch that was played."""


class Claims(Protocol):
    """Claims to cells, so that no two evaluators play the same one: league.redis.cell_leases."""

    def claim(self, cells: Sequence[Cell]) -> Cell | None:
        """Claim and return the first of `cells` that nobody else holds; the claim before this one ends."""


class NoClaims:
    """The claims of an evaluator that plays alone."""

    def claim(self, cells: Sequence[Cell]) -> Cell | None:
        return cells[0] if cells else None


@dataclass
class Plan:
    """The cells worth playing among `slots`, as planned after `batch` batches."""

    slots: Slots
    batch: int
    wanted: list[Cell]  # not played often enough to decide who is in the mixture, the most useful first
    cells: np.ndarray  # [C, 2]: slots of the cells that the mixture depends on
    weights: np.ndarray  # [C]: how much it does


class Evaluator:
    """Plays the cells between frozen players that the league's mixture depends on.

    A cell is known from `least` games on. The cells of the mixture's members are then played on, those first that are
    known worst, weighted by the shares of their players, until their mean returns are known to within `error` with
    confidence 1 - `alpha` each, at all times, or at `most` games. Returns of games lie within [-bound, bound];
    None takes 1, or the largest that is seen.
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
        error: float = 0.05,
        temperature: float = 0.25,
        *,
        bound: float | None = 1.0,
        alpha: float = 0.05,
        claims: Claims | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.games, self.returns = games, returns
        self.policy_of, self._claims, self._recorder = policy_of, claims or NoClaims(), recorder
        self.generator, self.alpha = torch.Generator().manual_seed(seed), alpha
        self._rounds, self._least, self._most, self._error = rounds, least, most, error
        self._bound_is_given = bound is not None
        returns.settings = MixtureSettings(least, alpha, bound or 1.0, temperature, error / 1000.0)
        self._batches = 0
        self._plan: Plan | None = None

    def mixture(self, slots: Slots) -> np.ndarray:
        """Return the equilibrium mixture of the players at `slots` on the mean returns so far: (2, n), a row per seat.

        By league.empirical_game.mixture: quantal response at `temperature` times the cells' mean standard error; Nash's
        once that is below `error` / 1000, as it is at once where games are not left to chance.
        """
        return self.returns.mixture(slots).shares

    def gain_within(self, slots: Slots, mixture: np.ndarray) -> tuple[float, float] | None:
        """Return bounds of what the best of the mixture's members gains against `mixture` (2, n), in points per game.

        They hold with confidence 1 - alpha for all cells between `slots` together, since those choose the members, at
        all times while these are the players. None for one member.
        """
        members = np.flatnonzero(mixture.max(axis=0) > 0.0)
        if len(members) < 2:
            return None
        lower, upper = self.returns.interval(slots[members], self._bound, self.alpha / len(slots) ** 2)
        return gain_interval(mixture[:, members], lower, upper)

    def next_cells(self, slots: Slots) -> list[Cell]:
        """Return the cells to play next, the most useful first; none if all are known."""
        plan = self._plan
        if plan is None or not np.array_equal(plan.slots, slots) or self._batches >= plan.batch + REFRESH:
            plan = self._plan = self._planned(slots)
        while plan.wanted:
            if wanted := [cell for cell in plan.wanted if self._games(*cell) < self._least]:
                return wanted
            plan = self._plan = self._planned(slots)
        return self._refined(plan)

    def step(self, slots: Slots) -> bool:
        """Play one batch of games of the most useful cell that nobody else plays; False when there is none."""
        cell = self._claims.claim(self.next_cells(slots)) if len(slots) else None
        if cell is None:
            return False
        first, second = cell
        recording = None if self._recorder is None else self._recorder.begins(first)
        found = play(self.games, self.policy_of(first), self.policy_of(second), self._rounds, self.generator, recording)
        self.hold_within(found)
        self.returns.record(first, second, found)
        if self._recorder is not None and recording is not None:
            self._recorder.ended(first, second, recording)
        self._batches += 1
        return True

    def hold_within(self, found: np.ndarray) -> float:
        """Return the bound that intervals of returns like those `found` are computed for, raised to hold them.

        Raises ConfigurationError where they are beyond the one that was given.
        """
        if (largest := float(np.abs(found).max())) > self._bound * (1.0 + 1e-6):
            problem = (
                f"a game of {self.games.name!r} returned {largest:g}, beyond the {self._bound:g} that intervals are "
                f"computed for; give league.max_return, at least {largest:g}"
            )
            if self._bound_is_given:
                raise ConfigurationError(problem)
            logger.warning("%s; taking that", problem)
            self.returns.settings = replace(self.returns.settings, bound=largest)
        return self._bound

    def _planned(self, slots: Slots) -> Plan:
        mixture, members, _, places = self.returns.mixture(slots)
        wanted = [(int(slots[i]), int(slots[j])) for i, j in places]
        share = mixture[:, members] / mixture.max(axis=1, keepdims=True)
        weights = np.maximum(share[0][:, None], share[1])  # a cell matters as much as its players are played
        first, second = np.meshgrid(slots[members], slots[members], indexing="ij")
        cells = np.stack([first.ravel(), second.ravel()], axis=1)
        return Plan(slots, self._batches, wanted[:WANTED], cells, weights.ravel())

    def _refined(self, plan: Plan) -> list[Cell]:
        if not len(plan.cells):
            return []
        places, inverse = np.unique(plan.cells, return_inverse=True)
        lower, upper = self.returns.interval(places, self._bound, self.alpha)
        rows, columns = inverse.reshape(plan.cells.shape).T
        width = (upper - lower)[rows, columns] / 2.0
        open_ = (width > self._error) & (self.returns.games(places)[rows, columns] < self._most)
        order = np.argsort(np.where(open_, -width * plan.weights, 0.0), kind="stable")[:OFFERED]
        return [(int(first), int(second)) for first, second in plan.cells[order[open_[order]]]]

    @property
    def _bound(self) -> float:
        return self.returns.settings.bound

    def _games(self, first: int, second: int) -> float:
        return float(self.returns.games(np.array([first, second]))[0, 1])


def evaluator_of(
    league: LeagueConfig,
    games: TwoPlayerVectorEnv,
    returns: Returns,
    policy_of: Callable[[int], Policy],
    seed: int,
    claims: Claims | None = None,
    recorder: Recorder | None = None,
) -> Evaluator:
    """Return an evaluator with the settings of a league."""
    return Evaluator(
        games,
        returns,
        policy_of,
        seed,
        league.evaluation_rounds,
        league.cell_least,
        league.cell_most,
        league.cell_error,
        league.mixture_temperature,
        bound=league.max_return or games.max_return,
        alpha=1.0 - league.cell_confidence,
        claims=claims,
        recorder=recorder,
    )
