"""The simple kinds of player: self-play, random, a fixed opponent, PFSP, softmax, the champion of a knockout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from league.matchmaking.base import (
    KINDS,
    Branch,
    Candidates,
    Kind,
    by_pfsp,
    only,
    rivals_of,
    share_problems,
    slot_named,
    weighted,
)
from league.matchmaking.remembered import remembered
from league.matchmaking.view import Player, View
from league.rules.pfsp import WEIGHTINGS
from league.rules.win_rates import Slots
from warren.errors import unknown_name


@KINDS.register("self_play")
@dataclass(frozen=True)
class SelfPlay(Kind):
    """Always play itself, with its newest weights."""

    takes_a_side: ClassVar[bool] = False

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        yield Branch("self_play", 1.0, lambda: only(me.slot))


@KINDS.register("random")
@dataclass(frozen=True)
class Random(Kind):
    """Uniform over the rivals: fictitious self-play over history (Heinrich et al. 2015); itself with `self_share`."""

    self_share: float = 0.0

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        yield Branch("self_play", self.self_share, lambda: only(me.slot))
        rivals = rivals_of(view, me)
        yield Branch("random", 1.0 - self.self_share, lambda: weighted(rivals, np.ones(len(rivals))))

    def problems(self) -> list[str]:
        return share_problems("self_share", self.self_share)


@KINDS.register("fixed")
@dataclass(frozen=True)
class Fixed(Kind):
    """Always play `opponent`: a reference, or a player to exploit."""

    opponent: str = ""

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        slot = slot_named(view, me, self.opponent)
        yield Branch("fixed", 1.0, lambda: only(slot))

    @property
    def named(self) -> tuple[str, ...]:
        return (self.opponent,)

    def problems(self) -> list[str]:
        return [] if self.opponent else ["opponent is not given; name a player"]


@KINDS.register("pfsp")
@dataclass(frozen=True)
class Pfsp(Kind):
    """Prioritized fictitious self-play over the rivals by `weighting`; itself with `self_share`."""

    weighting: str = "squared"
    self_share: float = 0.0

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        yield Branch("self_play", self.self_share, lambda: only(me.slot))
        rivals = rivals_of(view, me)
        yield Branch("pfsp", 1.0 - self.self_share, lambda: by_pfsp(view, me, rivals, self.weighting))

    def problems(self) -> list[str]:
        known = [] if self.weighting in WEIGHTINGS else [unknown_name("PFSP weighting", self.weighting, WEIGHTINGS)]
        return known + share_problems("self_share", self.self_share)


@KINDS.register("softmax")
@dataclass(frozen=True)
class Softmax(Kind):
    """p proportional to exp(-|w - target| / temperature) for win rates w; a target of 1/2 prefers equals."""

    temperature: float = 0.1
    target: float = 0.5

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = rivals_of(view, me)

        def candidates() -> Candidates:
            distance = np.abs(view.win_rates(me.slot, rivals) - self.target)
            return weighted(rivals, np.exp((distance.min() - distance) / self.temperature))

        yield Branch("softmax", 1.0, candidates)

    def problems(self) -> list[str]:
        positive = [] if self.temperature > 0.0 else [f"temperature={self.temperature} is not positive"]
        return positive + share_problems("target", self.target)


@KINDS.register("champion")
@dataclass(frozen=True)
class Champion(Kind):
    """The winner of a knockout among the rivals, seeded by Elo as in tennis and decided by their games."""

    needs_returns: ClassVar[bool] = True

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        rivals = rivals_of(view, me)
        yield Branch("champion", 1.0, lambda: only(knockout(view, rivals)))


def knockout(view: View, slots: Slots) -> int:
    """Return the slot that wins a knockout: first seed against last, and so on; a draw goes to the better seed.

    Frozen players meet only in the games of evaluators, so these games of a pair count before its win rate.
    """
    edge = _edges(view, slots)
    standing = list(range(len(slots)))  # by seed
    seeds = np.argsort(-view.elo(slots), kind="stable")
    while len(standing) > 1:
        half = (len(standing) + 1) // 2
        better, worse = standing[:half], standing[half:][::-1]
        byes = half - len(worse)  # with an odd number the first seed rests
        winners = better[:byes]
        for one, other in zip(better[byes:], worse, strict=True):
            winners.append(one if edge[seeds[one], seeds[other]] >= 0.0 else other)
        standing = sorted(winners)
    return int(slots[seeds[standing[0]]])


def _edges(view: View, slots: Slots) -> NDArray[np.float64]:
    """Return how much each of `slots` (rows) is ahead of each (columns), (n, n), by returns, else by win rates."""
    frozen = bool(np.isin(slots, view.roster.historical).all())
    counted = None if frozen else view.counted  # no match changes the win rates between frozen players
    key, game = slots.tobytes(), view.empirical_game

    def edges() -> NDArray[np.float64]:
        rates = remembered(view.roster, ("rates", key), counted, lambda: view.matrix(slots))
        played, mean = game.games(slots) > 0.0, game.matrix(slots)
        return np.where(played & played.T, mean - mean.T, rates - 0.5)

    return remembered(view.roster, ("edges", key), (counted, game.version), edges)
