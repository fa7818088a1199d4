"""How calls end without an answer; one-way calls that are lost are counted and remembered until somebody asks."""

from __future__ import annotations

from celery.utils.log import get_logger

from tasks.client.future import Handle
from tasks.client.pending import PendingCalls

logger = get_logger(__name__)


class Failures:
    """Ends calls of the table `calls`; `lost` is the number of one-way calls that were lost, ever."""

    def __init__(self, calls: PendingCalls) -> None:
        self._calls = calls
        self._unasked: list[Exception] = []  # of one-way calls, until `take`
        self.lost = 0

    def fail(self, call: Handle, error: Exception) -> None:
        """End a call with `error`. Of one-way calls, for which nobody may be waiting, it is remembered and logged."""
        if self._calls.pop(call.id) is None:
            return
        call.settle(failure=error)
        if not call.spec.response:
            self.lost += 1
            self._unasked.append(error)
            if len(self._unasked) == 1:  # the others are counted
                logger.error("a one-way call of %s is lost: %s", call.spec.name, error)

    def fail_all(self, error: Exception) -> None:
        """End all calls of the table with `error`."""
        calls, lost = self._calls.all(), self.lost
        for call in calls:
            self.fail(call, error)
        if calls:
            one_way = self.lost - lost
            logger.warning("%d calls failed, of which %d were one-way and are lost: %s", len(calls), one_way, error)

    def take(self) -> list[Exception]:
        """Why one-way calls were lost since this was asked last, in order."""
        taken, self._unasked = self._unasked, []
        if len(taken) > 1:
            logger.error("%d one-way calls are lost, the last: %s", len(taken), taken[-1])
        return taken
