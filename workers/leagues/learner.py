"""The learner of one player of a league: `python -m workers.learner league=kuhn player=main run=NAME`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import redis

from tasks.worker.pool import stop_worker
from warren.errors import LeagueError, PlayerStopped
from workers.config import roles
from workers.config.schema import Config
from workers.leagues.client import LeagueClient
from workers.leagues.course import STOPPED, LeagueCourse, league_trainer
from workers.leagues.turns import RoundTurns
from workers.learning.allreduce.ranks import Ranks
from workers.learning.learner import train
from workers.learning.learner_role import LearnerRole
from workers.learning.trainer import Trainer
from workers.runtime.league_paths import league_of
from workers.runtime.role import enter
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

AGAIN_AFTER = 1.0  # s until the next round of a player that is paused or has no opponent


class LeagueLearnerRole(LearnerRole):
    """A learner whose rounds wait while its player is paused, and which ends when the player is frozen by a person.

    When streaming, it trains on whatever arrives, also on segments that were under way when its player was paused.
    """

    def __init__(
        self, config: Config, session: Session, trainer: Trainer, course: LeagueCourse, stopping: threading.Event
    ) -> None:
        """Take `stopping`, the event that ends the waits of the course's client."""
        super().__init__(config, session, trainer, config.player)
        self.course, self._stopping = course, stopping
        self.turns = RoundTurns(session.redis, session.topology.key_prefix, config.player, league_of(config))

    def work(self) -> int:
        try:
            if self.trainer.ranks is None:
                self.course.begin()
            return self.consume(f"learner-{self.player}")
        except PlayerStopped as error:  # for example, by a person while no learner ran
            logger.info("%s", error)
            return 0

    def on_stopping(self) -> None:
        self._stopping.set()
        super().on_stopping()

    def learn(self, calls: Sequence[Any]) -> list[Any]:
        """Run the learn task: make an update, or dispatch another round soon if the player could not be played."""
        if self.rounds is None:
            return super().learn(calls)
        (payloads,) = calls
        deferred = next((payload["deferred"] for payload in payloads if "deferred" in payload), None)
        if deferred is None or any("failed" in payload for payload in payloads):
            return super().learn(calls)
        if self.rounds.returned(payloads[0]["round"]):
            self.rounds.succeeded()
            self._leave_turns()
            logger.info("player %s: waiting: %s", self.course.player, deferred)
            again = threading.Timer(AGAIN_AFTER, self.rounds.dispatch, (self.trainer.progress.version,))
            again.daemon = True
            again.start()
        return self._spare(payloads)

    def figures(self) -> str:
        """Return the figures of training as text."""
        progress = self.trainer.progress
        return f"{progress.steps:,} steps, weight version {progress.version}, {self.course.status}"

    def keep(self) -> None:
        """Also extend the learning period's lease, and act on the player's status in the league."""
        super().keep()
        try:
            status = self.course.keep()
        except LeagueError as error:  # no answer: the lease lasts for a while, and the next call asks again
            logger.warning("%s", error)
            return
        if status in STOPPED:
            logger.info("player %s was %s: it learns no more", self.course.player, status)
            super().on_stopping()
            stop_worker()
        elif self.rounds is None:  # streaming actors ask the league themselves which players are paused
            return
        elif status == "paused":
            self.rounds.hold()
            self._leave_turns()
        elif self.rounds.held:
            self.rounds.release()
        elif self.trainer.leads:
            self.turns.stay()

    def is_its_turn(self) -> bool:
        """Return whether the next round may begin, by the players' shares; of several learners the first one waits."""
        return not self.trainer.leads or self.turns.mine(self.trainer.progress.steps)

    def end(self) -> None:
        """Stop the background threads, and tell the other players not to wait for this one."""
        super().end()
        self._leave_turns()

    def _leave_turns(self) -> None:
        try:
            self.turns.leave()
        except redis.RedisError as error:  # the others wait for some seconds
            logger.debug("the other players were not told: %s", error)


def run(config: Config) -> int:
    """Train one player for as long as the league wants it to learn; return the exit status.

    Raises what workers.learning.learner.train raises.
    """
    session = enter(config, roles.LEARNER, torch_threads=config.learner_threads)
    player, stopping = config.player, threading.Event()

    def make(ranks: Ranks | None) -> LeagueLearnerRole:
        # The lease lets one learner run at a time, and of several ranks one leads. The name stays the same over
        # restarts, so the successor of a killed learner, or the next rank that leads, takes up its period at once.
        client = LeagueClient(session, f"learner-{player}", stopping)
        trainer, course = league_trainer(session, league_of(config), client, stopping, stop_worker, ranks)
        return LeagueLearnerRole(config, session, trainer, course, stopping)

    return train(config, session, player, make)
