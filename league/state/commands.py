"""The commands of a league. Each is carried out in one step, in memory by `decide` or in Redis by its script.

The fields of a command are the arguments of its script (league/redis/lua), in that order.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar


@dataclass(frozen=True)
class Command:
    """Numbers are int and leases are in ms; all other fields are text in the form of league.state.fields."""

    script: ClassVar[str]

    def arguments(self) -> list[str | int]:
        """Return the script's arguments."""
        given: list[str | int] = []
        for field in fields(self):
            value = getattr(self, field.name)
            given += value if isinstance(value, tuple) else [value]
        return given


@dataclass(frozen=True)
class Add(Command):
    """Add a player -> "added" and its slot, or "exists"."""

    script = "add"
    name: str
    kind: str
    config: str
    model: str
    initial: str
    frozen: str
    rules: str
    hyperparameters: str
    by: str


@dataclass(frozen=True)
class Change(Command):
    """Set fields of a player; `changes` is field and value in turn -> "changed" or "unknown"."""

    script = "change"
    name: str
    by: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class TakeSnapshot(Command):
    """Add a frozen copy of a player, named as its model -> "added", "exists", "frozen" or "unknown"."""

    script = "snapshot"
    player: str
    model: str
    by: str


@dataclass(frozen=True)
class Issue(Command):
    """Issue a match -> "issued" and its fields, "ended", or "gone" or "paused" and the player's name.

    `others`: more opponents than `away`, for games of more than two teams.
    """

    script = "issue"
    match: str
    home: str
    away: str
    branch: str
    holder: str
    lease: int
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Count(Command):
    """Count games of a match, oldest first -> "counted", or "aborted" or "refused" and why.

    `outcomes` are "w", "d" or "l" of the home player; with more than two players the place of each, in the match's
    order.
    """

    script = "report"
    match: str
    outcomes: str
    by: str


@dataclass(frozen=True)
class Abort(Command):
    """End a match without a result -> "aborted" or "refused", and why."""

    script = "abort"
    match: str
    reason: str
    by: str


@dataclass(frozen=True)
class Extend(Command):
    """Hold an open match for longer -> "1", or "0" where it is not open."""

    script = "extend"
    match: str
    lease: int


@dataclass(frozen=True)
class Expire(Command):
    """Free at most `most` matches whose lease has passed -> the number freed."""

    script = "expire"
    most: int


@dataclass(frozen=True)
class OpenPeriod(Command):
    """Open the learning period of a player -> "opened" and its fields, "busy" and its learner, or why there is none."""

    script = "open_period"
    player: str
    learner: str
    lease: int


@dataclass(frozen=True)
class TellProgress(Command):
    """Report the progress of a learning player -> "on", "paused", or why its learner should stop."""

    script = "progress"
    player: str
    number: int
    learner: str
    steps: int
    lease: int


@dataclass(frozen=True)
class ClosePeriod(Command):
    """End a period -> "closed", "reset", "exploited" or "again", the model to go on from, and the decision.

    If the period cannot be closed: "unknown", "removed", "frozen" or "lost". `source` is the player whose weights are
    taken over, "" for none; then come its model, and its hyperparameters, mutated. `snapshots` are the models that
    become frozen players if a snapshot is taken.
    """

    script = "close_period"
    player: str
    number: int
    learner: str
    steps: int
    model: str
    snapshot: int
    reset: int
    source: str
    source_model: str
    hyperparameters: str
    reason: str
    by: str
    snapshots: tuple[str, ...] = ()
