"""Steps that follow an update: what fails of them is logged, and undoes nothing."""

from __future__ import annotations

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

    def make(self, what: str, action: Callable[[], object]) -> None:
        """Run a step; `what` completes "could not ..."."""
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
        self._failed = True

    def begin(self) -> None:
        """An update is made: count anew what of the steps after it fails."""
        self._failed = False

    def end(self, aside: str = "") -> None:
        """All steps after an update were tried; `aside`: what a thread beside them cannot do, if there is such."""
        if aside:
            self.trouble = aside
        self.troubles = self.troubles + 1 if self._failed or aside else 0
