"""The settings of a league, fixed when it is created: how results count, and which late results do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import inf, isfinite

from league.rules.ratings import ELO_INITIAL, ELO_K
from league.rules.win_rates import DECAY
from warren.errors import ConfigurationError

LONGEST = 1e9  # s; Redis takes no endless time
COUNT, DROP = "count", "drop"


@dataclass(frozen=True)
class Settings:
    """Part of the league's history: the same results give another payoff under other settings."""

    decay: float = DECAY  # factor on the payoff with every game
    elo_initial: float = ELO_INITIAL
    elo_k: float = ELO_K
    on_reset: str = DROP  # whether a result counts if a player was reset since: it is about other weights
    on_frozen: str = COUNT  # whether a result counts if a player was frozen since: its weights are nearly the same
    snapshots_inherit: bool = False  # a snapshot begins with its parent's payoff instead of an empty one
    # s for which an ended match is remembered, to tell a late result from one that was not asked for; less once 100,000
    # more have ended. The newest 100,000 may be remembered for longer, those before the newest 200,000 never are.
    memory: float = 600.0

    def __post_init__(self) -> None:
        problems = [] if 0.0 < self.decay <= 1.0 else [f"league decay={self.decay} is not in (0, 1]"]
        problems += [] if 0.0 <= self.elo_k < inf else [f"league elo_k={self.elo_k} is not 0 or more, and finite"]
        problems += [] if isfinite(self.elo_initial) else [f"league elo_initial={self.elo_initial} is not finite"]
        if not 1.0 <= self.memory <= LONGEST:
            problems.append(f"league memory={self.memory} s is not within 1 and {LONGEST:,.0f} s")
        for name in ("on_reset", "on_frozen"):
            if getattr(self, name) not in (COUNT, DROP):
                problems.append(f"league {name}={getattr(self, name)!r}: write {COUNT!r} or {DROP!r}")
        if not isinstance(self.snapshots_inherit, bool):
            problems.append(f"league snapshots_inherit={self.snapshots_inherit!r} is neither true nor false")
        if problems:
            raise ConfigurationError(problems)

    def differences(self, asked: Settings) -> list[str]:
        """Return a message for each setting whose value in `asked` is not the one that the league was created with."""
        own = self.to_fields()
        return [
            f"league {name}: asked for {value}, but this league was created with {own[name]}; "
            "its history counts by that, so start a new run for another"
            for name, value in asked.to_fields().items()
            if value != own[name]
        ]

    def to_fields(self) -> dict[str, str]:
        """Return the settings as Redis and the stream hold them, with exact floats."""
        return {
            field.name: str(int(value)) if isinstance(value := getattr(self, field.name), bool) else _text(value)
            for field in fields(self)
        }

    @classmethod
    def from_fields(cls, given: Mapping[str, str]) -> Settings:
        """Read the fields that `to_fields` wrote."""
        return cls(
            decay=float(given["decay"]),
            elo_initial=float(given["elo_initial"]),
            elo_k=float(given["elo_k"]),
            on_reset=given["on_reset"],
            on_frozen=given["on_frozen"],
            snapshots_inherit=given["snapshots_inherit"] == "1",
            memory=float(given["memory"]),
        )


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else repr(float(value))
