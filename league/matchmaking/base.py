"""Kinds of players, and the choice of an opponent by a kind.

A kind is a frozen dataclass; its fields are its configuration, so a new one takes ten lines:

    @KINDS.register("nemesis")
    @dataclass(frozen=True)
    class Nemesis(Kind):
        floor: float = 0.1

        def branches(self, view: View, me: Player) -> Iterator[Branch]:
            rivals = view.roster.historical
            yield Branch("nemesis", 1.0, lambda: weighted(rivals, view.win_rates(me.slot, rivals) < self.floor))

A matchmaker yields branches, each with its probability and the probabilities of its opponents. So its choices are known
exactly (`distribution`), not only sampled (`choose`); tests and offline replays compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from league.matchmaking.sides import facing, side_of
from league.matchmaking.view import Player, View
from league.rules.pfsp import NEGLIGIBLE, pfsp
from league.rules.run_share import RunShare, Steps, reached
from league.rules.win_rates import Slots
from warren.errors import MatchmakingError
from warren.registry import Registry


class Candidates(NamedTuple):
    """The opponents that a branch may choose: `slots` (n,) and the probability of each, (n,), summing to 1."""

    slots: Slots
    probabilities: NDArray[np.float64]


IN_SEAT = "_in_seat_"
DECISIONS, MATCHES = "decisions", "matches"


class Branch(NamedTuple):
    """One way to find an opponent, taken with `probability`; its candidates are computed only if it is taken.

    The opponent takes both seats in turn, or always one seat if `in_seat` made the branch's `name`.
    """

    name: str
    probability: float
    candidates: Callable[[], Candidates]


def in_seat(name: str, seat: int) -> str:
    """Return the name of a branch whose opponents take `seat`, 0 or 1, in every game of the match."""
    return f"{name}{IN_SEAT}{seat}"


def seat_of(branch: str) -> int | None:
    """Return the seat that the opponent of a match from this branch takes; None for both in turn."""
    _, given, seat = branch.rpartition(IN_SEAT)
    return int(seat) if given else None


class Choice(NamedTuple):
    """The opponent that was chosen, and the branch that chose it."""

    opponent: Player
    branch: str


@dataclass(frozen=True)
class Decision:
    """The decision on a learning player at the end of a learning period. A snapshot is always taken before a reset."""

    snapshot: bool = False
    reset: bool = False  # back to its initial weights
    exploit: str | None = None  # name of a stronger player whose weights and hyperparameters it takes over
    reason: str = ""


class Target(NamedTuple):
    """Players to beat: for each of `games` games one at `slots` (n,) is drawn by `shares` (2, n), a row a seat.

    With `by_member` a look also says what each of them lost.
    """

    slots: Slots
    shares: NDArray[np.float64]
    games: int = 0
    by_member: bool = False


@dataclass(frozen=True)
class Kind:
    """One kind of player. `steps` below are decisions of the player."""

    # True where the weights that its players begin with enter the league as frozen players. Those of exploiters do
    # not: exploiters have nothing to exploit before there is another player.
    begins_frozen: ClassVar[bool] = True

    # True where its snapshots show what others can lose: the league's mixture may meet them without playing them.
    exploits: ClassVar[bool] = False

    # True where its snapshots are best responses, whose gain evaluators measure (`gains_from`).
    responds: ClassVar[bool] = False

    # True where it chooses by the returns of evaluators' games, which the stream does not hold.
    needs_returns: ClassVar[bool] = False

    # True where its players may take one side alone (sides.py); False where all are measured against each other.
    takes_a_side: ClassVar[bool] = True

    # Its options that are steps; each may instead be a share of the run: "2%".
    counted_in_steps: ClassVar[tuple[str, ...]] = ("snapshot_every",)

    # Steps between snapshots of a player: 0 snapshots at the end of every learning period, None never.
    snapshot_every: Steps | None = 0

    # The unit of the shares of opponents: "decisions" that the player learns from, or "matches", as in most
    # publications. A match against itself gives twice as many decisions as another: it learns from both seats.
    shares: str = DECISIONS

    # The team that it takes in each game, and alone learns for; None: every team in turn.
    side: int | None = None

    def branches(self, view: View, me: Player) -> Iterator[Branch]:
        """Yield the ways in which `me` finds its next opponent; their probabilities, in `shares`, sum to 1.

        Raises MatchmakingError when there is nobody to play.
        """
        raise NotImplementedError

    def period_end(self, view: View, me: Player, steps: int, rng: np.random.Generator) -> Decision:
        """Decide about a snapshot, reset or exploit of `me`, `steps` after its last snapshot."""
        if self.snapshot_every is None or not reached(steps, self.snapshot_every):
            return Decision(reason="too few steps since the last snapshot")
        return Decision(snapshot=True, reason="end of the learning period")

    @property
    def named(self) -> tuple[str, ...]:
        """Return the players that its options name; these have to be in the league."""
        return ()

    @property
    def wants_looks(self) -> bool:
        """True where evaluators should play its learning players against `to_beat`, for `period_end` to decide by."""
        return False

    def to_beat(self, view: View) -> Target | None:
        """Return the players that this kind is to beat; None while there are none."""
        return None

    def gains_from(self, view: View, response: Player) -> Target | None:
        """Return the frozen players from which evaluators measure the gain of `response`, a frozen player of this kind.

        None: it is not measured.
        """
        return None

    def within(self, run: float | None) -> Self:
        """Return this kind with shares of a run turned into steps; `run`: the player's steps in it, None if unknown."""
        shares = {name: value for name, value in vars(self).items() if isinstance(value, RunShare)}
        steps: dict[str, Any] = {name: share.steps(run) for name, share in shares.items()} if run is not None else {}
        return replace(self, **steps) if steps else self

    def problems(self) -> list[str]:
        """Return what is wrong with the configuration."""
        return []


KINDS: Registry[type[Kind]] = Registry("kind of player")


def names_of(kind: type[Kind]) -> frozenset[str]:
    """Return the names under which `kind` and its subclasses are registered."""
    return frozenset(name for name in KINDS if issubclass(KINDS[name], kind))


def choose_all(kind: Kind, view: View, me: Player, rng: np.random.Generator, opponents: int) -> list[Choice]:
    """Draw `opponents` opponents of `me`, each by itself, for the teams after its own. Raises as `choose` does.

    Where `me` takes one side alone, the first opponent's branch says which side that one takes.
    """
    teams, mine = opponents + 1, side_of(me)
    if mine is None and opponents == 1:
        return [choose(kind, view, me, rng)]
    first, *others = (choose(kind, view, me, rng, place, teams) for place in range(1, teams))
    if mine is not None:
        first = first._replace(branch=in_seat(first.branch, (mine + 1) % teams))
    return [first, *others]


def choose(kind: Kind, view: View, me: Player, rng: np.random.Generator, place: int = 1, teams: int = 2) -> Choice:
    """Draw the next opponent of `me`, for `place` among the teams. Raises MatchmakingError when there is none."""
    view = facing(view, me, place, teams)
    while True:
        choice = _drawn(kind, view, me, rng)
        # Drop half of the matches against itself: each teaches as much as two against another.
        if choice.opponent.slot != me.slot or kind.shares == MATCHES or rng.random() < 0.5:
            return choice


def _drawn(kind: Kind, view: View, me: Player, rng: np.random.Generator) -> Choice:
    branches = [branch for branch in kind.branches(view, me) if branch.probability > 0.0]
    coin, passed = rng.random(), 0.0
    taken = branches[-1]
    for branch in branches:
        passed += branch.probability
        if coin < passed:
            taken = branch
            break
    candidates = taken.candidates()
    # A search in the cumulative probabilities does what rng.choice does, without its checks of a thousand candidates.
    place = int(np.searchsorted(np.cumsum(candidates.probabilities), rng.random(), side="right"))
    slot = int(candidates.slots[min(place, len(candidates.slots) - 1)])
    return Choice(view.roster.by_slot[slot], taken.name)


def distribution(kind: Kind, view: View, me: Player) -> NDArray[np.float64]:
    """Return the probability of each slot to be the opponent in the next match of `me`, (slots,) float64."""
    total = np.zeros(view.roster.slots)
    view = facing(view, me)
    for branch in kind.branches(view, me):
        if branch.probability <= 0.0:
            continue
        candidates = branch.candidates()
        np.add.at(total, candidates.slots, branch.probability * candidates.probabilities)
    if kind.shares == DECISIONS and total[me.slot]:
        total[me.slot] /= 2.0
        total /= total.sum()
    return total


def weighted(slots: Slots, weights: ArrayLike) -> Candidates:
    """Return candidates in proportion to `weights`, uniform if all are 0. Raises MatchmakingError without slots."""
    values = np.asarray(weights, dtype=np.float64)
    if len(slots) == 0:
        raise MatchmakingError("no player can be chosen; add a player or wait for the first snapshot")
    total = values.sum()
    if total < NEGLIGIBLE:
        return Candidates(slots, np.full(len(slots), 1.0 / len(slots)))
    return Candidates(slots, values / total)


def only(slot: int) -> Candidates:
    """Return one candidate with probability 1."""
    return Candidates(np.array([slot], dtype=np.intp), np.ones(1))


def by_pfsp(view: View, me: Player, slots: Slots, weighting: str) -> Candidates:
    """Return candidates by PFSP from the win rates of `me` against `slots`. Raises MatchmakingError without slots."""
    if len(slots) == 0:
        raise MatchmakingError(f"player {me.name!r} has no opponent for PFSP; add a frozen player or a snapshot")
    return Candidates(slots, pfsp(view.win_rates(me.slot, slots), weighting))


def rivals_of(view: View, me: Player) -> Slots:
    """Return all frozen players but `me`; before the first snapshot every other player; if there is none, `me`."""
    for group in (view.roster.historical, view.roster.everyone):
        others: Slots = group[group != me.slot]
        if len(others):
            return others
    if me.slot not in view.roster.by_slot:
        raise MatchmakingError(f"player {me.name!r} has no opponent on another side; add a player there")
    return np.array([me.slot], dtype=np.intp)


def slot_named(view: View, me: Player, name: str) -> int:
    """Return the slot of the player `name`, which `me` plays. Raises MatchmakingError where it was removed."""
    other = view.roster[name]
    if other.removed:
        raise MatchmakingError(f"player {me.name!r} plays {name!r}, which was removed; name another in its options")
    return other.slot


def unheeded_snapshots(kind: Kind, instead: str) -> list[str]:
    """Return what is wrong with `snapshot_every` of a kind whose snapshots other options decide."""
    given = kind.snapshot_every
    return [f"snapshot_every={given} is not heeded by this kind; set {instead} instead"] if given != 0 else []


def share_problems(name: str, value: float) -> list[str]:
    """Return what is wrong with a share, a probability or a win rate."""
    return [] if 0.0 <= value <= 1.0 else [f"{name}={value} is not in [0, 1]"]
