"""Schedules: a setting as a function of the environment steps trained on, built from plain settings by name.

A schedule may also follow the run's progress, a number from 0 to 1 (`Timed`, `over: progress`).

`SCHEDULES` holds them by name. A number alone is a constant:

    build_schedule({"name": "linear", "start": 3e-4, "end": 0.0, "steps": 1_000_000}, "learning_rate of ppo")
    build_schedule(3e-4, "learning_rate of ppo")
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from agents.configuration import parse
from warren.errors import ConfigurationError
from warren.registry import Registry


class Schedule(Protocol):
    """The value of a setting after `steps` environment steps (0 or more)."""

    def __call__(self, steps: int) -> float: ...


SCHEDULES: Registry[type[Schedule]] = Registry("schedule")


OVER = ("steps", "progress")
PARTS = 1_000_000  # units in which progress is counted, like steps


@dataclass(frozen=True)
class Timed:
    """A schedule with the clock that it follows: environment steps, or the run's progress."""

    schedule: Schedule
    over_progress: bool = False

    def at(self, steps: int, progress: float = 0.0) -> float:
        """Return the value after `steps` environment steps, at `progress` in [0, 1] of the run."""
        return self.schedule(round(progress * PARTS) if self.over_progress else steps)


def build_timed(config: Any, owner: str) -> Timed:
    """Return the schedule that `build_schedule` returns, from a table that may also have `over`: steps, or progress.

    With `over: progress`, `steps` is a share of the run, such as 0.5; 1 if left out. Raises ConfigurationError.
    """
    over = config.get("over", "steps") if isinstance(config, Mapping) else "steps"
    if over not in OVER:
        raise ConfigurationError(f"{owner}: over={over!r} of its schedule must be {' or '.join(OVER)}")
    if not isinstance(config, Mapping):
        return Timed(build_schedule(config, owner))
    table = {name: value for name, value in config.items() if name != "over"}
    if over == "progress":
        if config.get("name") not in ("constant", "piecewise"):
            table.setdefault("steps", 1.0)
        table |= {"steps": _parts(table["steps"], owner)} if "steps" in table else {}
    return Timed(build_schedule(table, owner), over == "progress")


def _parts(share: Any, owner: str) -> Any:
    """Return shares of a run, a number or a list of them, in PARTS. Raises ConfigurationError."""
    if isinstance(share, list | tuple):
        return [_parts(one, owner) for one in share]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ConfigurationError(
            f"{owner}: steps={share!r} of a schedule over progress must be a share of the run, within 0 and 1"
        )
    return round(share * PARTS)


def build_schedule(config: Any, owner: str) -> Schedule:
    """Return the schedule that `config` describes: a number, or a table of its `name` and its settings.

    Errors name `owner` ("learning_rate of ppo"). Raises ConfigurationError.
    """
    if isinstance(config, int | float) and not isinstance(config, bool):
        return Constant(float(config))
    if not isinstance(config, Mapping) or not isinstance(config.get("name"), str):
        known = ", ".join(SCHEDULES)
        raise ConfigurationError(f"{owner} must be a number or a table with a name ({known}), is {config!r}")
    settings = {key: value for key, value in config.items() if key != "name"}
    try:
        return parse(SCHEDULES[config["name"]], f"schedule {config['name']!r}", settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{owner}: {problem}" for problem in error.problems) from None


@SCHEDULES.register("constant")
@dataclass(frozen=True)
class Constant:
    """The same `value` at every step."""

    value: float

    def __call__(self, steps: int) -> float:
        return self.value


@SCHEDULES.register("linear")
@dataclass(frozen=True)
class Linear:
    """A straight line from `start` to `end` over `steps`, then `end`."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _check_steps("linear", self.steps)

    def __call__(self, steps: int) -> float:
        return self.start - (self.start - self.end) * min(1.0, steps / self.steps)


@SCHEDULES.register("exponential")
@dataclass(frozen=True)
class Exponential:
    """Exponential decay start * rate^(t / steps), never below `end`."""

    start: float
    rate: float
    steps: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _check_steps("exponential", self.steps)
        if not 0 < self.rate <= 1:
            raise ConfigurationError(f"rate={self.rate} of schedule 'exponential' must be above 0 and at most 1")
        if not 0 <= self.end <= self.start:
            raise ConfigurationError(
                f"end={self.end} of schedule 'exponential' must be within 0 and start={self.start}"
            )

    def __call__(self, steps: int) -> float:
        return max(self.end, self.start * math.pow(self.rate, steps / self.steps))


@SCHEDULES.register("piecewise")
@dataclass(frozen=True)
class Piecewise:
    """Straight lines through the points (steps[i], values[i]), level before the first and after the last."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.steps or len(self.steps) != len(self.values):
            raise ConfigurationError(
                f"schedule 'piecewise' needs as many steps as values, and one at least: "
                f"it has {len(self.steps)} steps and {len(self.values)} values"
            )
        if self.steps[0] < 0 or any(after <= before for before, after in pairwise(self.steps)):
            raise ConfigurationError(f"steps={list(self.steps)} of schedule 'piecewise' must rise from 0 or more")

    def __call__(self, steps: int) -> float:
        after = bisect_right(self.steps, steps)
        if after == 0 or after == len(self.steps):
            return self.values[max(0, after - 1)]
        (x0, x1), (y0, y1) = self.steps[after - 1 : after + 1], self.values[after - 1 : after + 1]
        return y0 + (y1 - y0) * (steps - x0) / (x1 - x0)


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine:
    """Half a cosine from `start` to `end` over `steps`, then `end`: eq. 5 of Loshchilov & Hutter 2017, no restarts."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _check_steps("cosine", self.steps)

    def __call__(self, steps: int) -> float:
        progress = min(1.0, steps / self.steps)
        return self.end + 0.5 * (self.start - self.end) * (1 + math.cos(math.pi * progress))


@SCHEDULES.register("inverse_square_root")
@dataclass(frozen=True)
class InverseSquareRoot:
    """Decay start / sqrt(1 + t / steps).

    With an entropy coefficient that decays so, self-play converges to equilibria (Sokota et al. 2023, MMD).
    """

    start: float
    steps: int

    def __post_init__(self) -> None:
        _check_steps("inverse_square_root", self.steps)

    def __call__(self, steps: int) -> float:
        return self.start / math.pow(1.0 + steps / self.steps, 0.5)


def _check_steps(name: str, steps: int) -> None:
    if steps < 1:
        raise ConfigurationError(f"steps={steps} of schedule {name!r} must be at least 1")
