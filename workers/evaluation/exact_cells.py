"""Payoff cells between frozen players, computed on the whole game instead of played."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property

import numpy as np

from agents.policies import Policy
from envs import TwoPlayerVectorEnv, exploitability
from envs.sequence_form import SequenceForm
from league.empirical_game.mixture import BEST_RESPONSES, EXACT, MixtureSettings
from league.empirical_game.restricted_game import gain_interval
from league.empirical_game.returns import Cell, Returns
from league.rules.win_rates import Slots
from workers.config.league import LeagueConfig
from workers.evaluation.best_response_search import BestResponseSearch
from workers.evaluation.cells import Claims, Evaluator, Played
from workers.evaluation.scores import table

PLANS = 64_000_000  # probabilities of realisation plans that are kept, half a GiB: 200 players of liar's dice
OFFERED = 64  # players whose cells are missing, of whom the first that no other evaluator works on is taken
RESPONDING = (-1, -1)  # a cell of no players: its lease lets one evaluator compute best responses
JOINING, ANSWERS = 32, 8  # most players that join the search in one step; best responses of each seat in it
NEAR, FINE = 0.01, 1e-4  # shares of exploitability and of the largest return within which a mixture counts as the best


class ExactEvaluator(Evaluator):
    """Computes the cells of one player at a time with all known players, in each seat; the mixture is then Nash's.

    The newest unknown player comes first. The table of each player is computed once, and if the evaluator is behind,
    the oldest players wait, which matter least. A cell counts as one game; `games` are for looks. If the mixture has to
    withstand best responses, the evaluator searches for it in between. Raises ConfigurationError for a game without a
    sequence form.
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
        self._cells_first = True
        self._settled = False  # the least exploitable mixture of all players that were added to the search is found
        self._plans: OrderedDict[int, tuple[np.ndarray, np.ndarray]] = OrderedDict()  # by slot, the last used last

    @cached_property
    def _search(self) -> BestResponseSearch:
        return BestResponseSearch(self.form)

    @cached_property
    def form(self) -> SequenceForm:
        """The whole game."""
        return exploitability.load(self._league.env, **self._league.env_kwargs)

    def gain_within(self, slots: Slots, mixture: np.ndarray, played: Played = None) -> tuple[float, float] | None:
        """Return the best opponent's gain against `mixture` (2, n), as both of its bounds; see Evaluator.

        None if there is only one opponent.
        """
        if self.returns.settings.against == BEST_RESPONSES:
            best = self.returns.least_exploitable
            return None if best is None else (best.exploitability, best.exploitability)
        members = self._opponents(slots, mixture, played)
        if len(members) < 2:
            return None
        payoff = self.returns.matrix(slots[members])
        return gain_interval(mixture[:, members], payoff, payoff)

    def gain_of(self, slot: int, against: Slots, shares: np.ndarray) -> float:
        """Return what the player at `slot` gains a game from the mixture `shares` (2, n) of those `against` (n,).

        All are frozen. Raises one of UNLOADABLE.
        """
        mine, theirs = self._plans_of(slot), [self._plans_of(other) for other in against.tolist()]
        mixed = [sum(share * plans[seat] for share, plans in zip(shares[seat], theirs, strict=True)) for seat in (0, 1)]
        return (self.form.payoff(mine[0], mixed[1]) - self.form.payoff(mixed[0], mine[1])) / 2.0

    def _step(self, slots: Slots, played: Played) -> bool:
        """Compute cells or search for the mixture, in turn; if one is done, do the other; False if both are done."""
        ours = slots[self.returns.settings.playing(len(slots), played)]
        self._cells_first = not self._cells_first
        if self._cells_first:
            return self._compute_cells(slots) or self._respond(ours)
        return self._respond(ours) or self._compute_cells(slots)

    def _compute_cells(self, slots: Slots) -> bool:
        """Compute one player's missing cells with known players; False if none is missing or others compute them."""
        missing = self.returns.games(slots) == 0.0
        known = np.flatnonzero(~missing.diagonal())  # with all cells except those that another evaluator computes now
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

    def _respond(self, slots: Slots) -> bool:
        """Continue the search for the least exploitable mixture; False if it is found or another evaluator searches."""
        if self.returns.settings.against != BEST_RESPONSES:
            return False
        told = self.returns.least_exploitable
        if told is not None and not np.isin(told.slots, slots).all():
            told = None  # a player was removed
        if not np.isin(self._search.slots, slots).all():
            self._search = BestResponseSearch(self.form)
        search, newest = self._search, slots[::-1][: self._most_plans]
        joining = newest[~np.isin(newest, search.slots)][:JOINING].tolist()
        if told is not None:
            if len(search) and self._settled and not joining:
                return False
            if not len(search) and np.isin(slots, told.slots).all():  # another evaluator has got as far
                return False
        if self._claims.claim([RESPONDING]) is None:
            return False
        search.add({slot: self._plans_of(slot) for slot in joining})
        search.keep({*newest.tolist()})
        for _ in range(ANSWERS):
            search.step()
            best = search.best
            if found := search.gap <= max(NEAR * best.exploitability, FINE * self.returns.bound):
                break
        self._settled = found and not joining
        if told is None or best.exploitability <= told.exploitability * (1.0 if self._settled else 1.0 - NEAR):
            self.returns.found(best)
        return True

    @property
    def _most_plans(self) -> int:
        return 1 + PLANS // int(sum(self.form.num_sequences))

    def _plans_of(self, slot: int) -> tuple[np.ndarray, np.ndarray]:
        if slot not in self._plans:
            self._plans[slot] = self.form.plans(table(self.form, self.policy_of(slot)))
            while len(self._plans) > self._most_plans:
                self._plans.popitem(last=False)
        self._plans.move_to_end(slot)
        return self._plans[slot]
