"""Mutable hyperparameters for population-based training (Jaderberg et al. 2017), with one rule per field.

    rules = Hyperparameters({"gamma": 0.99, "learning_rate": {"rule": "log_uniform", "low": 1e-5, "high": 1e-3}})
    values = rules.initial(rng)                       # a new player's values
    values = rules.exploited(its_rules, its_values, rng)    # copied from a stronger player, and mutated
    now = rules.at(values, period=3, progress=0.4)    # values that the learner uses at this moment

A field that is not a mapping with a `rule` is a constant. Values are JSON: they live in Redis and in the lineage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from warren.errors import ConfigurationError, unknown_name
from warren.registry import Registry

RULES: Registry[type[Rule]] = Registry("hyperparameter rule")


class Rule:
    """A rule by which one field begins, mutates and changes in time. Subclasses are frozen dataclasses of settings."""

    stores_use: ClassVar[bool] = True  # the learner uses the stored value itself

    def initial(self, rng: np.random.Generator) -> Any:
        """Return the value of a new player."""
        raise NotImplementedError

    def mutated(self, value: Any, rng: np.random.Generator) -> Any:
        """Return the value of a player that has just copied `value` from a stronger one."""
        return value

    def takes(self, value: Any) -> bool:
        """Return True if this rule can continue from `value`, which another rule stored and a learner used."""
        return False

    def at(self, value: Any, period: int, progress: float) -> Any:
        """Return the value that the learner uses in its period `period` (from 0), `progress` in [0, 1] through it."""
        return value

    def problems(self) -> list[str]:
        """Return what is wrong with the configuration, without the name of the field."""
        return []


@RULES.register("constant")
@dataclass(frozen=True)
class Constant(Rule):
    """Always `value`."""

    value: Any

    def initial(self, rng: np.random.Generator) -> Any:
        return self.value


@RULES.register("perturb")
@dataclass(frozen=True)
class Perturb(Rule):
    """Begins at `value`; each mutation multiplies it by one of `factors`, kept within [low, high].

    A whole number stays whole: the product is rounded, and changes by 1 at least, so that a small number can change.
    """

    value: float
    factors: Sequence[float] = (0.8, 1.2)
    low: float = -math.inf
    high: float = math.inf

    def initial(self, rng: np.random.Generator) -> float:
        return self.value

    def takes(self, value: Any) -> bool:
        return _is_number(value)

    def mutated(self, value: Any, rng: np.random.Generator) -> float:
        factor = self.factors[int(rng.integers(len(self.factors)))]
        if not isinstance(self.value, int):
            return float(min(max(value * factor, self.low), self.high))
        moved: int = round(value * factor)
        if moved == value and factor != 1.0:
            moved += 1 if (factor > 1.0) == (value >= 0) else -1
        low = moved if self.low == -math.inf else math.ceil(self.low)
        high = moved if self.high == math.inf else math.floor(self.high)
        return min(max(moved, low), high)

    def problems(self) -> list[str]:
        wrong = _lacking("factors", self.factors)
        return wrong + ([] if self.low <= self.value <= self.high else [f"value {self.value} is outside [low, high]"])


@RULES.register("log_uniform")
@dataclass(frozen=True)
class LogUniform(Rule):
    """Drawn log-uniformly from [low, high]; a mutation draws anew with probability `redraw`, else perturbs."""

    low: float
    high: float
    redraw: float = 0.25
    factors: Sequence[float] = (0.8, 1.2)

    def initial(self, rng: np.random.Generator) -> float:
        drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return min(max(drawn, self.low), self.high)

    def takes(self, value: Any) -> bool:
        return _is_number(value)

    def mutated(self, value: Any, rng: np.random.Generator) -> float:
        if rng.random() < self.redraw:
            return self.initial(rng)
        factor = self.factors[int(rng.integers(len(self.factors)))]
        return float(min(max(value * factor, self.low), self.high))

    def problems(self) -> list[str]:
        wrong = [] if 0.0 < self.low <= self.high else [f"low={self.low}, high={self.high}: need 0 < low <= high"]
        wrong += [] if 0.0 <= self.redraw <= 1.0 else [f"redraw={self.redraw} is not a probability within 0 and 1"]
        return wrong + _lacking("factors", self.factors)


@RULES.register("choice")
@dataclass(frozen=True)
class Choice(Rule):
    """One of `options`, drawn uniformly; a mutation draws another one with probability `redraw`."""

    options: Sequence[Any]
    redraw: float = 1.0

    def initial(self, rng: np.random.Generator) -> Any:
        return self.options[int(rng.integers(len(self.options)))]

    def takes(self, value: Any) -> bool:
        return value in self.options

    def mutated(self, value: Any, rng: np.random.Generator) -> Any:
        others = [option for option in self.options if option != value]
        if not others or rng.random() >= self.redraw:
            return value
        return others[int(rng.integers(len(others)))]

    def problems(self) -> list[str]:
        wrong = _lacking("options", self.options)
        return wrong + (
            [] if 0.0 <= self.redraw <= 1.0 else [f"redraw={self.redraw} is not a probability within 0 and 1"]
        )


@RULES.register("cyclic")
@dataclass(frozen=True)
class Cyclic(Rule):
    """The next of `values` with each learning period, round and round; a mutation shifts where the round begins.

    The stored value is the place in the round at period 0.
    """

    stores_use: ClassVar[bool] = False
    values: Sequence[Any]

    def initial(self, rng: np.random.Generator) -> int:
        return 0

    def mutated(self, value: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(len(self.values)))

    def at(self, value: Any, period: int, progress: float) -> Any:
        return self.values[(int(value) + period) % len(self.values)]

    def problems(self) -> list[str]:
        return _lacking("values", self.values)


@RULES.register("schedule")
@dataclass(frozen=True)
class Schedule(Rule):
    """Piecewise linear over each learning period through `points`, pairs (progress in [0, 1], value).

    The stored value is a scale of the whole curve, 1 at first; a mutation multiplies it by one of `factors`.
    """

    stores_use: ClassVar[bool] = False
    points: Sequence[Sequence[float]]
    factors: Sequence[float] = (1.0,)

    def initial(self, rng: np.random.Generator) -> float:
        return 1.0

    def mutated(self, value: Any, rng: np.random.Generator) -> float:
        return float(value * self.factors[int(rng.integers(len(self.factors)))])

    def at(self, value: Any, period: int, progress: float) -> float:
        at, values = zip(*self.points, strict=True)
        return float(value * np.interp(progress, at, values))

    def problems(self) -> list[str]:
        wrong = _lacking("factors", self.factors)
        if not self.points or any(len(point) != 2 for point in self.points):
            return [*wrong, "points must be pairs (progress, value), at least one"]
        at = [point[0] for point in self.points]
        ascending = all(one < other for one, other in itertools.pairwise(at))
        inside = ascending and at[0] >= 0.0 and at[-1] <= 1.0
        return wrong + ([] if inside else [f"progress of points is {at}; it must ascend within [0, 1]"])


class Hyperparameters:
    """The rules of all fields of a kind of player. Raises ConfigurationError that names every wrong field."""

    RESERVED: ClassVar[str] = "rule"

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self.rules: dict[str, Rule] = {}
        problems: list[str] = []
        for name, given in rules.items():
            if not name:
                problems.append("a hyperparameter has no name; write rules.NAME=VALUE")
            try:
                self.rules[name] = rule = _rule(given)
                found = _not_finite(rule) or rule.problems()
                problems += [f"hyperparameter {name!r}: {problem}" for problem in found]
            except ConfigurationError as error:
                problems += [f"hyperparameter {name!r}: {problem}" for problem in error.problems]
            except TypeError:
                problems.append(
                    f"hyperparameter {name!r}: a value in {given} has a wrong type; use numbers, in lists where the "
                    "rule takes several"
                )
        if problems:
            raise ConfigurationError(problems)

    def initial(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the values of a new player."""
        return {name: rule.initial(rng) for name, rule in self.rules.items()}

    def exploited(self, source: Hyperparameters, stored: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return the values of a player that copies a stronger one, `stored` by the rules `source`: each is mutated.

        A field begins anew if the stronger player lacks it, since it was added to the rules later. It also does if the
        other's rule stored it in another sense: a place in a cycle is not a learning rate.
        """

        def copied(name: str, rule: Rule) -> bool:
            if name not in stored or name not in source.rules:
                return False
            other = source.rules[name]
            return rule == other or (other.stores_use and rule.takes(stored[name]))

        return {
            name: rule.mutated(stored[name], rng) if copied(name, rule) else rule.initial(rng)
            for name, rule in self.rules.items()
        }

    def at(self, values: Mapping[str, Any], period: int, progress: float = 0.0) -> dict[str, Any]:
        """Return the values that a learner uses in its period `period` (from 0), `progress` in [0, 1] through it."""
        return {name: rule.at(values[name], period, progress) for name, rule in self.rules.items()}


def _lacking(name: str, given: Any) -> list[str]:
    """Return what is wrong with an option that has to be a list of at least one element."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [f"{name} is {given!r}; give a list of at least one"]
    return [] if given else [f"{name} is empty; give at least one"]


def _not_finite(rule: Rule) -> list[str]:
    """Return which numbers of a rule are infinite or NaN, and what is no number where the rule computes with it."""
    computed = [getattr(rule, "factors", ()), *getattr(rule, "points", ())]
    if isinstance(rule, Perturb):
        computed.append([rule.value])
    wrong = [
        f"{one!r} is not a number; write one, without quotes"
        for given in computed
        for one in _parts(given)
        if not _is_number(one)
    ]
    for option, value in vars(rule).items():
        numbers = [one for part in _parts(value) for one in _parts(part) if isinstance(one, float)]
        is_bound = isinstance(rule, Perturb) and option in ("low", "high")  # infinite where there is none
        if not is_bound and not all(map(math.isfinite, numbers)):
            wrong.append(f"{option}={value} is not finite")
    return wrong


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rule(given: Any) -> Rule:
    if not (isinstance(given, Mapping) and Hyperparameters.RESERVED in given):
        return Constant(given)
    options = dict(given)
    name = options.pop(Hyperparameters.RESERVED)
    kind = RULES[name]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    wrong = [unknown_name(f"option of {name}", option, known) for option in options if option not in known]
    if wrong:
        raise ConfigurationError(wrong)
    try:
        return kind(**options)
    except TypeError as error:
        raise ConfigurationError(f"{name}: {str(error).split('__init__() ')[-1]}") from None
