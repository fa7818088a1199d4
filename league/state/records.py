"""Players, their progress and open matches, to and from the text fields of Redis, events and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from league.matchmaking.view import ModelRef, Player
from league.state.fields import to_field

Fields = Mapping[str, str]
OTHERS = ("others", "other_generations", "other_frozen")  # fields that only matches of more than two players have


@dataclass
class Progress:
    """The progress of a learning player; steps are environment steps."""

    steps: int = 0
    snapshot_steps: int = 0  # at the last snapshot
    period: int = 0  # number of the last learning period, from 1; 0 before any
    is_open: bool = False  # whether a learner holds that period
    learner: str = ""
    deadline: int = 0  # ms; when the learner's lease ends
    start: str = ""  # the model from which its next period starts, "player@version"; "" for its initial weights
    closed_steps: int = 0  # at the end of its last period, from which the next one is counted
    # The outcome of its last period, for a learner that asks again because the first answer was lost.
    closed_as: str = ""  # "closed", "reset" or "exploited"
    closed_snapshot: bool = False
    closed_source: str = ""  # the player whose weights it took over
    closed_reason: str = ""


@dataclass(frozen=True)
class Match:
    """A match that was issued and has not ended; `deadline` is in ms of Unix time."""

    id: str
    home: str
    away: str
    branch: str
    holder: str
    home_generation: int
    away_generation: int
    home_frozen: bool
    away_frozen: bool
    deadline: int
    others: tuple[str, ...] = ()  # more opponents than `away`, in games of more than two teams
    other_generations: tuple[int, ...] = ()
    other_frozen: tuple[bool, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the players by place, the home player first."""
        return (self.home, self.away, *self.others)

    @property
    def standing(self) -> list[tuple[str, int, bool]]:
        """Return (name, generation, whether frozen) of each player by place, as they were when the match was issued."""
        generations = self.home_generation, self.away_generation, *self.other_generations
        frozen = self.home_frozen, self.away_frozen, *self.other_frozen
        return list(zip(self.names, generations, frozen, strict=True))


def model_of(text: str) -> ModelRef | None:
    """Return the model that a field names; None if it is empty."""
    return ModelRef.parse(text) if text else None


def player_from(name: str, fields: Fields) -> Player:
    """Return a player from its fields."""
    return Player(
        name=name,
        slot=int(fields["slot"]),
        kind=fields["kind"],
        config=json.loads(fields["config"]),
        parent=fields["parent"] or None,
        model=model_of(fields["model"]),
        initial=model_of(fields["initial"]),
        frozen=fields["frozen"] == "1",
        paused=fields["paused"] == "1",
        removed=fields["removed"] == "1",
        generation=int(fields["generation"]),
        rules=json.loads(fields["rules"]),
        hyperparameters=json.loads(fields["hyperparameters"]),
    )


def player_fields(player: Player) -> dict[str, str]:
    """Return the fields from which `player_from` reads."""
    return {name: to_field(value) for name, value in vars(player).items() if name != "name"}


def progress_from(fields: Fields) -> Progress:
    """Return a player's progress from its fields; older leagues lack those of the last period's end."""
    return Progress(
        steps=int(fields["steps"]),
        snapshot_steps=int(fields["snapshot_steps"]),
        period=int(fields["period"]),
        is_open=fields["is_open"] == "1",
        learner=fields["learner"],
        deadline=int(fields["deadline"]),
        start=fields["start"],
        closed_steps=int(fields.get("closed_steps", "0")),
        closed_as=fields.get("closed_as", ""),
        closed_snapshot=fields.get("closed_snapshot") == "1",
        closed_source=fields.get("closed_source", ""),
        closed_reason=fields.get("closed_reason", ""),
    )


def progress_fields(progress: Progress) -> dict[str, str]:
    """Return the fields from which `progress_from` reads."""
    return {name: to_field(value) for name, value in vars(progress).items()}


def match_from(match: str, fields: Fields) -> Match:
    """Return an open match from its fields."""
    return Match(
        match,
        fields["home"],
        fields["away"],
        fields["branch"],
        fields["holder"],
        int(fields["home_generation"]),
        int(fields["away_generation"]),
        fields["home_frozen"] == "1",
        fields["away_frozen"] == "1",
        int(fields["deadline"]),
        *others_from(*(fields.get(name, "") for name in OTHERS)),
    )


def match_fields(match: Match) -> dict[str, str]:
    """Return the fields from which `match_from` reads."""
    fields = {name: to_field(value) for name, value in vars(match).items() if name not in ("id", *OTHERS)}
    return fields | others_fields(match)


def others_fields(match: Match) -> dict[str, str]:
    """Return the fields that only a match of more than two players has; {} for a match of two."""
    if not match.others:
        return {}
    return {name: ",".join(map(to_field, getattr(match, name))) for name in OTHERS}


def others_from(names: str, generations: str, frozen: str) -> tuple[tuple[str, ...], tuple[int, ...], tuple[bool, ...]]:
    """Return the `others`, their generations and whether frozen, from the texts that `others_fields` wrote."""
    if not names:
        return (), (), ()
    flags = tuple(flag == "1" for flag in frozen.split(","))
    return tuple(names.split(",")), tuple(map(int, generations.split(","))), flags
