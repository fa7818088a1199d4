"""A call on its way that has more than arguments and a deadline: headers, a priority, a delay, its caller's hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.utils.log import get_logger

from tasks.middleware import Call

logger = get_logger(__name__)


class Outgoing:
    """A call on its way. `priority`: its level. `delay`: ms, or None. `entered`: how many middleware let it pass."""

    __slots__ = ("_hooks", "call", "delay", "entered", "priority")

    def __init__(self, call: Call, hooks: Sequence[tuple[Any, Any]], priority: int | None, delay: int | None) -> None:
        self.call, self._hooks, self.priority, self.delay, self.entered = call, hooks, priority, delay, 0

    @property
    def args(self) -> Sequence[Any]:
        """Return its positional arguments."""
        return self.call.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Return its keyword arguments."""
        return self.call.kwargs

    def end(self, error: BaseException | None) -> None:
        """Run the hooks of a call that has ended, with its error if it has one."""
        entered, self.entered = self.entered, 0
        for _, after in reversed(self._hooks[:entered]):
            if after is None:
                continue
            try:
                after(self.call, error=error)
            except BaseException:
                logger.exception("after_reply of a call of %s failed", self.call.service)


def delay_of(outgoing: Outgoing | None) -> float:
    """Return the s by which a call is delayed, 0 for one that is not."""
    return 0.0 if outgoing is None or outgoing.delay is None else outgoing.delay / 1000.0
