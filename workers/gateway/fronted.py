"""The life of a gateway's role, of a plain run and of a league: games come to its front until it stops."""

from __future__ import annotations

import logging

from workers.gateway.front import Front
from workers.rollout.actor_process import ActorProcess

logger = logging.getLogger(__name__)


class Fronted(ActorProcess):
    """An actor to whose `front` games come by themselves."""

    front: Front

    def on_ready(self) -> None:
        self.front.start()
        super().on_ready()

    def on_stopping(self) -> None:
        """Begin to stop: `work` lets open sessions end first, whose games are learned from until then."""

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
