"""Payoff cells between frozen players, computed on the whole game in place of being played."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property

import numpy as np

from agents.policies import Policy
from envs import TwoPlayerVectorEnv, exploitability
from envs.sequence_form import SequenceForm
from league.empirical_game.mixture import EXACT, MixtureSettings
from league.empirical_game.restricted_game import gain_interval
from league.empirical_game.returns import Cell, Returns
from league.rules.win_rates import Slots
from workers.config.league import LeagueConfig
from workers.evaluation.cells import Claims, Evaluator, Played
from workers.evaluation.scores import table

PLANS = 64_000_000  # probabilities of realisation plans that are kept, half a GiB: 200 players of liar's dice
OFFERED = 64  # players whose cells are missing: the first that no other evaluator works at is taken


class ExactEvaluator(Evaluator):
    """Computes the cells of one player with all known ones at a time, in each seat; the mixture is then Nash's.

    The newest that is not known comes first: the table of each player is computed once, and of an evaluator that is
    behind the oldest wait, who matter least. A cell counts as one game; `games` are for looks. Raises
    ConfigurationError for a game without a sequence form.
    """

    def __init__(
        self,
        league: LeagueConfig,
        games: TwoPlayerVectorEnv,
        returns: Returns,
        policy_of: Callable[[int], Policy],
        seed: int,
        *,
        bound: float | None,
        alpha: float,
        claims: Claims | None,
    ) -> None:
        super().__init__(games, returns, policy_of, seed, bound=bound, alpha=alpha, claims=claims)
        returns.settings = MixtureSettings(bound=bound or 1.0, source=EXACT)
        self._league = league
        self._plans: OrderedDict[int, tuple[np.ndarray, np.ndarray]] = OrderedDict()  # by slot, the last used last

    @cached_property
    def form(self) -> SequenceForm:
        """The whole game."""
        return exploitability.load(self._league.env, **self._league.env_kwargs)

    def gain_within(self, slots: Slots, mixture: np.ndarray, played: Played = None) -> tuple[float, float] | None:
        """Return what the best opponent gains against `mixture` (2, n), as both bounds of it; see Evaluator.

        None for one opponent.
        """
        members = self._opponents(slots, mixture, played)
        if len(members) < 2:
            return None
        payoff = self.returns.matrix(slots[members])
        return gain_interval(mixture[:, members], payoff, payoff)

    def _step(self, slots: Slots, played: Played) -> bool:
        """Compute the missing cells of one player with those known; False when there are none, or others do."""
        missing = self.returns.games(slots) == 0.0
        known = np.flatnonzero(~missing.diagonal())  # all of their cells, but for what another evaluator computes now
        rest = np.flatnonzero(missing.diagonal())[::-1]
        lacking = known[(missing | missing.T)[np.ix_(known, known)].any(axis=1)]
        offered = [(int(slot), int(slot)) for slot in slots[np.concatenate([lacking, rest])[:OFFERED]]]
        claimed = self._claims.claim(offered) if offered else None
        if claimed is None:
            return False
        me = claimed[0]
        first, second = self._plans_of(me)
        against_first, against_second = self.form.worth(1, first), self.form.worth(0, second)
        place, found = int(np.flatnonzero(slots == me)[0]), dict[tuple[int, int], float]()
        for other in np.union1d(known, place).tolist():
            slot = int(slots[other])
            theirs = self._plans_of(slot)
            if missing[place, other]:
                found[me, slot] = -float(against_first @ theirs[1])
            if missing[other, place]:
                found[slot, me] = float(against_second @ theirs[0])
        cells: list[Cell] = [(*cell, 1.0, value, value * value) for cell, value in found.items()]
        self.returns.add_cells(cells)
        return True

    def _plans_of(self, slot: int) -> tuple[np.ndarray, np.ndarray]:
        if slot not in self._plans:
            self._plans[slot] = self.form.plans(table(self.form, self.policy_of(slot)))
            while len(self._plans) > 1 + PLANS // sum(self.form.num_sequences):
                self._plans.popitem(last=False)
        self._plans.move_to_end(slot)
        return self._plans[slot]
