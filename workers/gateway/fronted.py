"""The life of a gateway's role, in a plain run and in a league: games connect to its front until it stops."""

from __future__ import annotations

import logging

from workers.gateway.front import Front
from workers.rollout.actor_process import ActorProcess

logger = logging.getLogger(__name__)


class Fronted(ActorProcess):
    """An actor to whose `front` games connect by themselves."""

    front: Front

    def on_ready(self) -> None:
        self.front.start()
        super().on_ready()

    def on_stopping(self) -> None:
        """Do nothing yet: `work` lets open sessions end first, and learning from their games goes on until then."""

    def stop(self) -> None:
        super().stop()
        self.front.hurry()  # the run is over: no learner is left

    def work(self, name: str) -> int:
        try:
            status = super().work(name)
            self.front.stop(at_once=self.stopping.is_set())
            return status
        finally:
            super().on_stopping()
            self.front.close()

    def _failed(self, error: BaseException) -> None:
        logger.error("the server failed", exc_info=error)
        self.failure = error
        self.stop()
