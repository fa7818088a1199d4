"""A read-only view of the league: its players and their results. Matchmakers see this and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.mixture import Mixture
from league.rules.plateau import Look
from league.rules.win_rates import Slots
from warren.errors import PlayerError, unknown_name

VERSION = re.compile(r"[0-9]{1,18}")  # as Redis counts; str.isdigit is also true of superscripts
NEWEST = -1  # version in a reference to a player's newest weights, whichever these are when it is followed


class ModelRef(NamedTuple):
    """A model in the pool; written `player@version`, or `player@newest`."""

    player: str
    version: int

    def __str__(self) -> str:
        return f"{self.player}@{'newest' if self.version == NEWEST else self.version}"

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        """Return the model that `player@version` names. Raises PlayerError for any other form."""
        player, at, version = text.rpartition("@")
        if player and version == "newest":
            return cls(player, NEWEST)
        if not at or not player or not VERSION.fullmatch(version):
            raise PlayerError(f"{text!r} is not a model; write PLAYER@VERSION, as in main@1200")
        return cls(player, int(version))


@dataclass(frozen=True)
class Player:
    """One player as the league knows it; a change makes a new version of the league's roster.

    `slot` is its permanent place in the payoff. A learning player has `parent` None; its snapshot is a frozen player
    whose `parent` is the learner's name. `model` is what plays it: for a learning player None means its newest weights.
    `generation` counts its resets and exploits: results of an older generation are about other weights.
    """

    name: str
    slot: int
    kind: str  # its entry in league.matchmaking.base.KINDS
    config: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    model: ModelRef | None = None
    initial: ModelRef | None = None  # weights that a reset goes back to; None: fresh ones
    frozen: bool = False
    paused: bool = False
    removed: bool = False
    generation: int = 0
    rules: Mapping[str, Any] = field(default_factory=dict)  # field -> rule (league.rules.hyperparameters)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # field -> its present value

    @property
    def is_average(self) -> bool:
        """True for a snapshot that is an average of its parent's weights, not the weights themselves."""
        return self.parent is not None and self.model is not None and self.model.player != self.parent

    @property
    def kind_shown(self) -> str:
        """The kind as reports name it, which marks averages of weights."""
        return f"{self.kind} average" if self.is_average else self.kind


class Roster:
    """All players at one version of the roster, and the groups that matchmakers choose from, by ascending slot."""

    def __init__(self, players: Iterable[Player] = (), version: int = 0) -> None:
        self.version = version
        self._by_name = {player.name: player for player in sorted(players, key=lambda player: player.slot)}
        self._groups: dict[Any, Slots] = {}
        self._parts: dict[Any, Roster] = {}

    def __getitem__(self, name: str) -> Player:
        try:
            return self._by_name[name]
        except KeyError:
            raise PlayerError(unknown_name("player", name, self._by_name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Player]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def part(self, key: Any, belongs: Callable[[Player], bool]) -> Roster:
        """Return the players for which `belongs` is true, as a roster that is cached by `key`."""
        if key not in self._parts:
            self._parts[key] = Roster(filter(belongs, self), self.version)
        return self._parts[key]

    @cached_property
    def by_slot(self) -> dict[int, Player]:
        """All players by slot, removed ones too."""
        return {player.slot: player for player in self}

    @cached_property
    def slots(self) -> int:
        """One more than the highest slot in use."""
        return max(self.by_slot, default=-1) + 1

    @cached_property
    def present(self) -> list[Player]:
        """Players that were not removed, by slot."""
        return [player for player in self if not player.removed]

    @property
    def everyone(self) -> Slots:
        """Slots of all present players."""
        return self._group("everyone", lambda player: True)

    @property
    def historical(self) -> Slots:
        """Slots of all frozen players, oldest first."""
        return self._group("historical", lambda player: player.frozen)

    @property
    def learning(self) -> Slots:
        """Slots of all players that still learn."""
        return self._group("learning", lambda player: not player.frozen)

    def learning_of(self, kinds: Collection[str]) -> Slots:
        """Slots of the learning players of these kinds."""
        return self._group(("learning", frozenset(kinds)), lambda player: not player.frozen and player.kind in kinds)

    def snapshots_of(self, parent: str) -> Slots:
        """Slots of the snapshots of one player, oldest first."""
        return self._group(("snapshots", parent), lambda player: player.frozen and player.parent == parent)

    def snapshots_of_kinds(self, kinds: Collection[str]) -> Slots:
        """Slots of the snapshots of players of these kinds, oldest first, without frozen players added by hand."""
        return self._group(
            ("snapshots of kinds", frozenset(kinds)),
            lambda player: player.frozen and player.parent is not None and player.kind in kinds,
        )

    def frozen_of_kinds(self, kinds: Collection[str]) -> Slots:
        """Slots of the frozen players of these kinds, oldest first: snapshots, and those frozen or added by hand."""
        return self._group(("frozen of kinds", frozenset(kinds)), lambda player: player.frozen and player.kind in kinds)

    def _group(self, key: Any, belongs: Any) -> Slots:
        if key not in self._groups:
            self._groups[key] = np.array([player.slot for player in self.present if belongs(player)], dtype=np.intp)
        return self._groups[key]


class EmpiricalGame(Protocol):
    """Results of evaluators that play frozen players against each other: league.empirical_game.returns, read-only."""

    @property
    def version(self) -> int:
        """A number that goes up with every addition, so that an outdated solution can be told."""

    def games(self, slots: Slots) -> NDArray[np.float64]:
        """Games of each of `slots` in seat 0 (rows) against each in seat 1 (columns), (n, n)."""

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Mean return of each of `slots` in seat 0 (rows) against each in seat 1 (columns), (n, n); 0 without games."""

    def mixture(self, slots: Slots, played: NDArray[np.bool_] | None = None) -> Mixture:
        """Return the equilibrium of the players at `slots`; `played`: see empirical_game.mixture."""


class View(Protocol):
    """The league as a matchmaker sees it. Slots are arrays of shape (n,), intp; answers are float64."""

    @property
    def roster(self) -> Roster:
        """Return the players of the league."""

    @property
    def empirical_game(self) -> EmpiricalGame:
        """Mean returns between frozen players. Matches say nothing about these: in each, one side is learning."""

    @property
    def counted(self) -> int:
        """Matches counted so far; a change shows that results computed from the payoff are out of date."""

    def win_rates(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Win rates of `home` against each of `away`, (n,); 1/2 against players that it never met."""

    def games(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Decayed games of `home` against each of `away`, (n,)."""

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Win rates of each of `slots` (rows) against each (columns), (n, n); 1/2 between players that never met, such
        as two frozen ones."""

    def elo(self, slots: Slots) -> NDArray[np.float64]:
        """Elo ratings, (n,)."""

    def looks(self, me: Player) -> Sequence[Look]:
        """Return evaluators' looks at a learning player since its last snapshot or reset, oldest first."""
