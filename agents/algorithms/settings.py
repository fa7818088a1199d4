"""The base of all algorithms' settings, and settings that several algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from agents.operators.schedules import Timed, build_timed
from warren.errors import ConfigurationError

Allowed = dict[str, tuple[str, bool]]  # setting -> (what it must be, whether it is)
Scheduled = float | Mapping[str, Any]  # the type of settings that may be a schedule: a number, or its table


@dataclass(frozen=True)
class AlgorithmConfig:
    """Base of all settings. Raises ConfigurationError with all that is wrong."""

    name: ClassVar[str] = ""  # the algorithm's, in errors

    def allowed(self) -> Allowed:
        """Return the bounds of all settings: a subclass adds its own to those of super()."""
        return {}

    def scheduled(self) -> tuple[str, ...]:
        """Return the names of the settings that may be schedules: a subclass adds its own to those of super()."""
        return ()

    def __post_init__(self) -> None:
        problems = [
            f"{setting}={getattr(self, setting)} of {self.name} must be {text}"
            for setting, (text, holds) in self.allowed().items()
            if not holds
        ]
        try:
            _ = self.schedules
        except ConfigurationError as error:
            problems += error.problems
        if problems:
            raise ConfigurationError(problems)

    @cached_property
    def schedules(self) -> dict[str, Timed]:
        """Return the schedules of all settings that may be one, by name. Raises ConfigurationError."""
        found, problems = {}, []
        for setting in self.scheduled():
            try:
                found[setting] = build_timed(getattr(self, setting), f"{setting} of {self.name}")
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(problems)
        return found

    def all_of(self, setting: str, holds: Callable[[float], bool]) -> bool:
        """Tell whether `holds` is true of the number that `setting` is, or of all values in its schedule's table."""
        given = getattr(self, setting)
        if not isinstance(given, Mapping):
            return holds(given)
        values = [given.get(name, ()) for name in ("value", "start", "end", "values")]
        numbers = [one for value in values for one in (value if isinstance(value, list | tuple) else [value])]
        return all(holds(number) for number in numbers if isinstance(number, int | float))


@dataclass(frozen=True)
class EpochsConfig(AlgorithmConfig):
    """Settings of algorithms that go over a batch several times in minibatches, with PPO's clipped loss."""

    epochs: int = 10  # passes over each batch
    minibatch_size: int = 256  # steps at most; a batch is cut into equal parts
    clip_range: float = 0.2  # how far the ratio of probabilities may leave 1
    normalize_advantage: bool = True  # to mean 0 and deviation 1 in each minibatch
    proximal_coefficient: Scheduled = 0.0  # weight of KL(policy || the policy at the update's beginning), MMD's 1 / eta

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "proximal_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "epochs": ("at least 1", self.epochs >= 1),
            "minibatch_size": ("at least 2, or advantages have no spread", self.minibatch_size >= 2),
            "clip_range": ("above 0", self.clip_range > 0),
            "proximal_coefficient": ("at least 0", self.all_of("proximal_coefficient", lambda x: x >= 0)),
        }


@dataclass(frozen=True)
class VTraceConfig(AlgorithmConfig):
    """Settings of algorithms that correct by V-trace for older weights that acted."""

    rho_bar: float = 1.0  # upper bound of importance weights: decides which policy's value is estimated
    c_bar: float = 1.0  # upper bound of the traces' weights: decides how fast it is found
    lambda_: float = 1.0  # factor of V-trace's traces

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "rho_bar": ("above 0, and at least c_bar", self.rho_bar > 0 and self.rho_bar >= self.c_bar),
            "c_bar": ("above 0", self.c_bar > 0),
            "lambda_": ("within 0 and 1", 0 <= self.lambda_ <= 1),
        }
