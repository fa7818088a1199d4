"""Payoff cells between frozen players, estimated by play: the choice of the next cell, and its games.

A cell is worth playing if it can change the mixture (league.empirical_game.restricted_game): cells between members, and
between other players and the mixture until no such player can gain. Each is played until its any-time interval is below
`error`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from agents.policies import Policy
from envs import TwoPlayerVectorEnv
from league.empirical_game.mixture import GAMES, PAIRS, MixtureSettings
from league.empirical_game.restricted_game import gain_interval
from league.empirical_game.returns import Returns
from league.rules.win_rates import Slots
from warren.errors import ConfigurationError
from workers.evaluation.cell_games import play, play_pairs
from workers.evaluation.passed_over import UNLOADABLE, PassingOver
from workers.rollout.games.game_log import Recording

logger = logging.getLogger(__name__)

REFRESH = 100  # batches until the cells worth playing are planned anew
WANTED = 16  # cells that are played before a new plan takes their results into account
OFFERED = 64  # most useful cells, of which the first that no other evaluator plays is taken

Cell = tuple[int, int]  # slot in seat 0, slot in seat 1
Played = npt.NDArray[np.bool_] | None  # players other than exploiters: league.matchmaking.played; None: all


class Recorder(Protocol):
    """Keeps the games of some batches; in a run this is batch_recorder.BatchRecorder."""

    def begins(self, first: int) -> Recording | None:
        """Return a recording for the batch that begins, with slot `first` in seat 0; None for no recording."""

    def ended(self, first: int, second: int, recording: Recording) -> None:
        """Keep the recording of a batch that was played."""


class Claims(Protocol):
    """Claims to cells, so that no two evaluators play the same one; in a run this is league.redis.cell_leases."""

    def claim(self, cells: Sequence[Cell]) -> Cell | None:
        """Claim and return the first of `cells` that no other evaluator holds; the claim before this one ends."""


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
    weights: np.ndarray  # [C]: how much it depends on each


class Evaluator:
    """Plays the cells between frozen players that the league's mixture depends on.

    A cell is known from `least` games on. The cells of the mixture's members are then played further, in the order of
    interval times the players' shares, the largest first. A cell is done when its mean return is known to within
    `error` with confidence 1 - `alpha`, at all times, or after `most` games. Returns of games lie within [-bound,
    bound]; `bound` None takes 1,
    or the largest that is seen. `source`: GAMES, or PAIRS of them; a pair's mean is one observation of both players'
    cells, so a player's share is the same in both seats. `least` and `most` count games there as well.
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
        source: str = GAMES,
        claims: Claims | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.games, self.returns = games, returns
        self.policy_of, self._claims, self._recorder = PassingOver(policy_of), claims or NoClaims(), recorder
        self.generator, self.alpha = torch.Generator().manual_seed(seed), alpha
        if source == PAIRS:  # an observation is of two games
            least, most = (least + 1) // 2, (most + 1) // 2
        self._rounds, self._least, self._most, self._error = rounds, least, most, error
        self._bound_is_given = bound is not None
        returns.settings = MixtureSettings(least, alpha, bound or 1.0, temperature, error / 1000.0, source)
        self._batches = 0
        self._plan: Plan | None = None

    def mixture(self, slots: Slots, played: Played = None) -> np.ndarray:
        """Return the equilibrium mixture of the players at `slots` on the mean returns so far: (2, n), a row per seat.

        By league.empirical_game.mixture: quantal response at `temperature` times the cells' mean standard error, or
        Nash's mixture if that is below `error` / 1000, as it is from the start in games without chance.
        """
        return self.returns.mixture(slots, played).shares

    def gain_within(self, slots: Slots, mixture: np.ndarray, played: Played = None) -> tuple[float, float] | None:
        """Return bounds of the best opponent's gain against `mixture` (2, n), in points per game.

        Opponents are the players with a share, and exploiters without a share that met all of those often enough. The
        bounds hold with confidence 1 - alpha for all cells between `slots` together, since these choose the members,
        and at all times while the players stay the same. None if there is only one opponent.
        """
        members = self._opponents(slots, mixture, played)
        if len(members) < 2:
            return None
        lower, upper = self.returns.interval(slots[members], self._bound, self.alpha / len(slots) ** 2)
        return gain_interval(mixture[:, members], lower, upper)

    def next_cells(self, slots: Slots, played: Played = None) -> list[Cell]:
        """Return the cells to play next, the most useful first; none if all are known."""
        plan = self._plan
        if plan is None or not np.array_equal(plan.slots, slots) or self._batches >= plan.batch + REFRESH:
            plan = self._plan = self._planned(slots, played)
        while plan.wanted:
            if wanted := [cell for cell in plan.wanted if self._games(*cell) < self._least]:
                return wanted
            plan = self._plan = self._planned(slots, played)
        return self._refined(plan)

    def step(self, slots: Slots, played: Played = None) -> bool:
        """Play one batch of games of the most useful cell that nobody else plays; False when there is none.

        Players whose weights could not be loaded are passed over for some minutes.
        """
        able = self.policy_of.able(slots)
        ours = None if played is None else played[able] if played[able].any() else ~played[able]
        try:
            return self._step(slots[able], ours)
        except UNLOADABLE:  # it has been logged
            return True

    def _step(self, slots: Slots, played: Played) -> bool:
        cell = self._claims.claim(self._offered(slots, played)) if len(slots) else None
        if cell is None:
            return False
        first, second = cell
        recording = None if self._recorder is None else self._recorder.begins(first)
        players = self.policy_of(first), self.policy_of(second)
        if self._in_pairs:
            found = play_pairs(self.games, *players, max(1, self._rounds // 2), self.generator, recording)
        else:
            found = play(self.games, *players, self._rounds, self.generator, recording)
        self.hold_within(found)
        self.returns.record(first, second, found)
        if self._recorder is not None and recording is not None:
            self._recorder.ended(first, second, recording)
        self._batches += 1
        return True

    def hold_within(self, found: np.ndarray) -> float:
        """Return the bound for which intervals of returns like `found` are computed, raised if `found` is beyond it.

        Raises ConfigurationError for returns that are not finite, or that are beyond a bound that was given.
        """
        if not (finite := np.isfinite(found)).all():
            raise ConfigurationError(
                f"a game of {self.games.name!r} returned {found[~finite][0]}; give finite rewards (python -m "
                "envs.check finds the step that does not)"
            )
        if (largest := float(np.abs(found).max())) > self._bound * (1.0 + 1e-6):
            problem = (
                f"a game of {self.games.name!r} returned {largest:g}, beyond the {self._bound:g} that intervals are "
                f"computed for; give league.max_return, at least {largest:g}"
            )
            if self._bound_is_given:
                raise ConfigurationError(problem)
            logger.warning("%s; taking that", problem)
            self.returns.saw(largest)
        return self._bound

    def _offered(self, slots: Slots, played: Played = None) -> list[Cell]:
        cells = self.next_cells(slots, played)
        if self._in_pairs:  # the games of a pair belong to both cells of two players
            cells = list(dict.fromkeys((min(cell), max(cell)) for cell in cells))
        return cells

    @property
    def _in_pairs(self) -> bool:
        return self.returns.settings.source == PAIRS

    def _opponents(self, slots: Slots, mixture: np.ndarray, played: Played) -> Slots:
        """Return the places of the players whose gains against `mixture` are known."""
        held = mixture.max(axis=0) > 0.0
        ours = self.returns.settings.playing(len(slots), played)
        if not ours.all():
            met = self.returns.games(slots) >= self.returns.settings.least
            held |= ~ours & met[:, held].all(axis=1) & met[held].all(axis=0)
        return np.flatnonzero(held)

    def _planned(self, slots: Slots, played: Played) -> Plan:
        found = self.returns.mixture(slots, played)
        mixture, members = found.shares, found.members
        # Cells that are begun are finished first: otherwise new players' cells would keep any from being known.
        fresh = self.returns.games(slots) == 0.0
        first_ones = sorted(found.wanted, key=lambda cell: fresh[cell])[:WANTED]
        wanted = [(int(slots[i]), int(slots[j])) for i, j in first_ones]
        share = mixture[:, members] / mixture.max(axis=1, keepdims=True)
        weights = np.maximum(share[0][:, None], share[1])  # a cell matters as much as its players are played
        first, second = np.meshgrid(slots[members], slots[members], indexing="ij")
        cells, weights = np.stack([first.ravel(), second.ravel()], axis=1), weights.ravel()
        ours = np.isin(members, found.playing)
        matter = (ours[:, None] | ours).ravel()
        cells, weights = cells[matter], weights[matter]
        return Plan(slots, self._batches, wanted, cells, weights)

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
        return self.returns.bound

    def _games(self, first: int, second: int) -> float:
        return float(self.returns.games(np.array([first, second]))[0, 1])
