"""Steps that follow an update: a failure is logged and counted, and undoes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis
from celery.utils.log import get_logger

from warren.errors import WarrenError
from workers.learning.allreduce.ranks import Stopping

logger = get_logger(__name__)


class Attempts:
    """Runs the steps that follow each update.

    `trouble`: the last failure; `troubles`: updates in a row with a failed step.
    """

    def __init__(self) -> None:
        self.trouble, self.troubles = "", 0
        self._failed = False
        self._since = 0.0  # when the first of those updates ended

    @property
    def troubled_for(self) -> float:
        """Seconds since the first of the updates in a row with a failed step; 0 if the last one had none."""
        return time.monotonic() - self._since if self.troubles else 0.0

    def make(self, what: str, action: Callable[[], object], may_fail: bool = False) -> None:
        """Run a step, logging its failure; `what` completes "could not ...". One that `may_fail` is not counted."""
        try:
            action()
            return
        except Stopping as error:
            logger.info("%s", error)
        except (redis.RedisError, OSError, WarrenError) as error:
            self.trouble = f"could not {what}: {type(error).__name__}: {error}"
            logger.error("%s; trying again later", self.trouble)
        except Exception as error:
            self.trouble = f"could not {what}: {type(error).__name__}: {error}"
            logger.exception("%s; trying again later", self.trouble)
        self._failed = self._failed or not may_fail

    def begin(self) -> None:
        """Begin the steps after an update: count their failures anew."""
        self._failed = False

    def end(self, aside: str = "") -> None:
        """End the steps after an update; `aside`: the failure of a thread beside them, "" if there is none."""
        if aside:
            self.trouble = aside
        if not self.troubles:
            self._since = time.monotonic()
        self.troubles = self.troubles + 1 if self._failed or aside else 0
