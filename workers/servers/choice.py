"""A choice among several ways to a server, tried in turn; each has a quick part and a slow part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warren.errors import BrokerError
from workers.servers.running import Say


class Unavailable(Exception):
    """Raised by a step that has no server to offer, with the reason; the next step is tried."""


@dataclass(frozen=True)
class FoundServer:
    """A server that answered."""

    url: str = field(repr=False)
    description: str
    temporary: bool = False  # it was started for this run, and its data ends with it


# The slow part of a step, which prints its progress. Raises BrokerError or Unavailable.
Finish = Callable[[Say], FoundServer]


class Choice:
    """The first of `steps` that has a server to offer or, if its slow part fails, the next.

    A step is a function that searches, begins to start processes, and returns its slow part; or raises Unavailable.
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
        """Return the server. Raises BrokerError, naming the steps that were tried and their errors."""
        while self._finish is not None:
            try:
                return self._finish(say)
            except Unavailable as reason:
                self._reasons.append(f"{self._step}: {reason}")
            except BrokerError as error:
                # A server that was named must work; others may be replaced by the next step.
                if len(self._steps) == 1 or self._step == "given":
                    raise
                say(f"skipped: {error}")
                self._reasons.append(f"{self._step}: {error}")
            self._next()
        lines = "\n".join(f"  {reason}" for reason in self._reasons)
        remedy = "broker=auto tries each way in turn; broker=embedded needs only its Python package"
        raise BrokerError(f"no {self._what} with broker={self._mode}:\n{lines}\n{remedy}")
