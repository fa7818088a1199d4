"""One of several ways to a server, each tried in turn: what it begins at once, and what takes time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warren.errors import BrokerError
from workers.servers.running import Say


class Unavailable(Exception):
    """A step has nothing to offer, for this reason; the next is tried."""


@dataclass(frozen=True)
class FoundServer:
    """A server that answered."""

    url: str = field(repr=False)
    description: str
    temporary: bool = False  # whether it was started for this run, and all that it holds ends with it


# What is left of a step, which takes time and says so. Raises BrokerError, or Unavailable.
Finish = Callable[[Say], FoundServer]


class Choice:
    """The first of `steps` that has something to offer; where that fails in the end, the next.

    A step is a function that looks, begins what is to be started, and returns what is left of it; or raises
    Unavailable with the reason.
    """

    def __init__(self, what: str, mode: str, steps: Mapping[str, Callable[[], Finish]]) -> None:
        self._what, self._mode, self._steps = what, mode, steps
        self._left, self._reasons = list(steps), list[str]()
        self._finish: Finish | None = None
        self._next()

    def _next(self) -> None:
        self._finish = None
        while self._left and self._finish is None:
            self._step = self._left.pop(0)
            try:
                self._finish = self._steps[self._step]()
            except Unavailable as reason:
                self._reasons.append(f"{self._step}: {reason}")

    def finish(self, say: Say) -> FoundServer:
        """What was found. Raises BrokerError, naming what was tried and why it failed."""
        while self._finish is not None:
            try:
                return self._finish(say)
            except Unavailable as reason:
                self._reasons.append(f"{self._step}: {reason}")
            except BrokerError as error:
                # A server that was named must work; of those we only looked for, the next may.
                if len(self._steps) == 1 or self._step == "given":
                    raise
                say(f"passed over: {error}")
                self._reasons.append(f"{self._step}: {error}")
            self._next()
        lines = "\n".join(f"  {reason}" for reason in self._reasons)
        remedy = "broker=auto tries each way in turn; broker=embedded needs nothing but its Python package"
        raise BrokerError(f"no {self._what} with broker={self._mode}:\n{lines}\n{remedy}")
