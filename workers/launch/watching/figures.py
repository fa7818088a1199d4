"""Checked figures that roles send to the launcher: no content of an event may stop a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from warren.repeats import Repeats

logger = logging.getLogger(__name__)

# Field -> (types, whether it may be null). Other fields are ignored.
STATUS_FIELDS: Mapping[str, tuple[type | tuple[type, ...], bool]] = {
    "state": (str, False),
    "steps": (int, False),
    "steps_per_second": ((int, float), False),
    "updates": (int, False),
    "episodes": (int, False),
    "mean_return": ((int, float), True),
    "mean_length": ((int, float), True),
    "window": (int, False),
    "version": (int, False),
    "data_age": ((int, float), False),
    "staleness": ((int, float), False),
    "stale_steps": (int, False),
    "reset_steps": (int, False),
    "refused": (int, False),
    "training_seconds": ((int, float), False),
    "trouble": (str, False),
}
SHOWN = ("steps", "steps_per_second", "mean_return", "window", "episodes", "version", "data_age", "staleness")
SCORE_FIELDS: Mapping[str, tuple[type | tuple[type, ...], bool]] = {
    "time": ((int, float), False),
    "seconds": ((int, float), False),
    "frozen": (int, False),
    "games": (int, False),
    "main_agent": ((int, float), True),
    "mixture": ((int, float), True),
    "uniform": ((int, float), True),
    "steps": (dict, False),
    "references": (dict, False),
}
EVALUATED_FIELDS: Mapping[str, tuple[type | tuple[type, ...], bool]] = {
    "steps": (int, False),
    "version": (int, False),
    "episodes": (int, False),
    "mean_return": ((int, float), False),
    "deviation": ((int, float), False),
}


class Figures(dict[str, Any]):
    """The newest figures of one sender; `receive` is the handler of its event. Bad ones are dropped and logged.

    The first bad one is logged at once, the others in one line every 10 s with their number.
    """

    def __init__(self, fields: Mapping[str, tuple[type | tuple[type, ...], bool]], needed: tuple[str, ...]) -> None:
        super().__init__()
        self._fields, self._needed = fields, needed
        self._dropped = Repeats()

    def receive(self, payload: Any) -> None:
        """Take over the payload if all of it is valid."""
        try:
            found = check(payload, self._fields, self._needed)
        except ValueError as error:
            if line := self._dropped.line(f"dropped an invalid event: {error}"):
                logger.warning("%s", line)
            return
        self.update(found)

    @property
    def handler(self) -> Callable[[Any], None]:
        """Return `receive`, for a subscription."""
        return self.receive


class Troubles:
    """Printer of the troubles that learners report: one line at the start of each and one at its end."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say, self._known = say, dict[str, str]()

    def poll(self, learner: str, figures: Mapping[str, Any]) -> None:
        """Print a line if a learner's trouble has begun, changed or ended."""
        trouble = figures.get("trouble", "")
        if trouble != self._known.get(learner, ""):
            self._known[learner] = trouble
            self._say(f"warning: {learner} {trouble}; it learns on" if trouble else f"{learner} can write again")


def statuses() -> Figures:
    """Return figures for a learner's status events."""
    return Figures(STATUS_FIELDS, SHOWN)


def scores() -> Figures:
    """Return figures for an evaluator's events."""
    return Figures(SCORE_FIELDS, ("frozen", "games", "mixture", "references"))


def evaluations() -> Figures:
    """Return figures for the events of a plain run's evaluator."""
    return Figures(EVALUATED_FIELDS, tuple(EVALUATED_FIELDS))


def check(
    payload: Any, fields: Mapping[str, tuple[type | tuple[type, ...], bool]], needed: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the known fields. Raises ValueError, naming the field, for one of a wrong type or a missing one."""
    if not isinstance(payload, Mapping):
        raise ValueError(f"{type(payload).__name__} is not a table of figures")
    found = {}
    for name, (types, nullable) in fields.items():
        if name not in payload:
            continue
        value = payload[name]
        if isinstance(value, bool) or not (isinstance(value, types) or (value is None and nullable)):
            raise ValueError(f"{name}={str(value)[:80]!r} is of a wrong type")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}={value} is not finite")
        if types is dict and not _is_table_of_numbers(value):
            raise ValueError(f"{name} is not a table of numbers")
        found[name] = value
    # The launcher itself sends a status with only the state at the end of a league's run.
    if set(found) != {"state"} and (missing := [name for name in needed if name not in found]):
        raise ValueError(f"{', '.join(missing)} missing")
    return found


def exit_status(payload: Any) -> int:
    """Return the exit status that a leader sends at the end; 1 for an invalid one."""
    return payload if type(payload) is int and 0 <= payload < 256 else 1


def _is_table_of_numbers(value: Any) -> bool:
    return all(
        isinstance(key, str) and isinstance(number, (int, float)) and not isinstance(number, bool)
        for key, number in value.items()
    )
