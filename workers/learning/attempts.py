"""Steps that follow an update: what fails of them is logged, and undoes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis
from celery.utils.log import get_logger

from warren.errors import WarrenError
from workers.learning.allreduce.ranks import Stopping

logger = get_logger(__name__)


class Attempts:
    """`trouble` is the last thing that could not be done; `troubles`, after how many updates in a row one could not."""

    def __init__(self) -> None:
        self.trouble, self.troubles = "", 0
        self._failed = False
        self._since = 0.0  # when the first of those updates ended

    @property
    def troubled_for(self) -> float:
        """s since the first of the updates in a row after which something could not be done; 0 after one without."""
        return time.monotonic() - self._since if self.troubles else 0.0

    def make(self, what: str, action: Callable[[], object], may_fail: bool = False) -> None:
        """Run a step; `what` completes "could not ...". One that `may_fail` is logged, and counts for nothing."""
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
        """An update is made: count anew what of the steps after it fails."""
        self._failed = False

    def end(self, aside: str = "") -> None:
        """All steps after an update were tried; `aside`: what a thread beside them cannot do, if there is such."""
        if aside:
            self.trouble = aside
        if not self.troubles:
            self._since = time.monotonic()
        self.troubles = self.troubles + 1 if self._failed or aside else 0
