"""The role of a learner, in plain runs and leagues: the learn task, its queue or rounds, and when to give up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import redis
from celery.exceptions import Reject

from tasks.app import CLAIM_EXPIRES
from tasks.app.reader import Reader
from tasks.worker.batching import BatchTask
from tasks.worker.pool import stop_worker
from warren.errors import ConfigurationError, NotFinite, WarrenError
from workers.config.schema import Config, Sampling
from workers.learning.allreduce.ranks import Stopping
from workers.learning.allreduce.shares import RanksDiffer
from workers.learning.place import held_at_once, name_of, queue_of
from workers.learning.sync_rounds import Rounds
from workers.learning.trainer import Trainer
from workers.runtime.actor_count import actors_now
from workers.runtime.session import PLAYER, Session
from workers.ui import returns

logger = logging.getLogger(__name__)

FAILURES = 3  # updates that may fail in a row before the learner gives up
TROUBLES = 20  # updates in a row with a failed step after them, before the learner gives up
TROUBLED_FOR = 120.0  # s for which this has to last, as a full disk or Redis may have room again sooner
KEEP_EVERY = 3.0  # s between checks of whether the pool still has the weights
REPORT_EVERY = 5.0  # s between log lines with figures

T = TypeVar("T")


class LearnerRole:
    """The learn task: takes segments or rounds from a queue to the trainer, and decides when to give up."""

    def __init__(
        self,
        config: Config,
        session: Session,
        trainer: Trainer,
        player: str | None = None,
    ) -> None:
        self.config, self.session, self.trainer, self.player = config, session, trainer, player or PLAYER
        self.failure: str | None = None
        self.failure_kind: type[WarrenError] = ConfigurationError
        self.by_user = False  # the failure is in the user's code or settings
        self._failures = 0  # updates that failed, in a row
        self._report_at = 0.0
        self.ended = threading.Event()
        self.begun = threading.Event()  # set once this learner has joined the others
        if trainer.ranks is None:
            self.begun.set()
        self.rounds: Rounds | None = None
        self.reader: Reader | None = None  # None if gathered: segments are rollouts' results in Redis
        if config.sampling is not Sampling.gathered:
            queue = session.topology.learner_queue(self.player)
            self.reader = Reader(session.redis, session.topology, queue, older_than=CLAIM_EXPIRES)
        else:
            queue = None if player is None else session.topology.learner_queue(player)
            if config.learner_id:
                queue = session.topology.rank_queue(self.player, config.learner_id)
            self.rounds = Rounds(
                session.app, partial(actors_now, session), config.round_timeout, self.give_up, player, queue,
                self.say_waiting, self._rank_and_size, config.deterministic, self.is_its_turn,
            )  # fmt: skip
        batch = 1 if self.rounds else config.segments_per_share
        minimum = 1 if trainer.replaying else batch  # segments that are only stored need not wait for more
        session.app.task(
            self.learn, base=BatchTask, name="learner.learn", batch=batch, minimum=minimum, ignore_result=True
        )
        session.app.task(self.round_failed, name="learner.round_failed", ignore_result=True)

    def work(self) -> int:
        """Train until the player's work is done, or until told to stop; return the exit status."""
        raise NotImplementedError

    def consume(self, name: str) -> int:
        """Consume segments or rounds until told to stop; return the exit status. `name`: that of the first rank."""
        config, session = self.config, self.session
        queue, held = queue_of(config, session, self.player), held_at_once(config, session.redis_url)
        return session.work(name_of(config, name), queue, self.on_ready, self.on_stopping, held)

    def learn(self, calls: Sequence[Any]) -> list[Any]:
        """Run the learn task. Gathered: one call with every actor's payload. Streaming: one payload per call."""
        self.begun.wait()
        if self.rounds is None:
            return self._update(calls)
        (payloads,) = calls
        round_id = payloads[0]["round"]
        failed = next((payload for payload in payloads if "failed" in payload), None)
        if failed is not None:
            self.rounds.failed(round_id, failed["failed"], failed["by_user"])
            return self._spare(payloads)
        if not self.rounds.returned(round_id):
            logger.warning("round %s came back after another of its version had been used; dropped", round_id)
            return self._spare(payloads)
        self.rounds.succeeded()
        if self.config.deterministic:
            payloads.sort(key=lambda payload: payload.get("actor", 0))
        newer = max(payload.get("superseded", -1) for payload in payloads)
        if newer >= 0:  # a pool was restored, and the learner went on from an older checkpoint
            self.trainer.skip_past(newer)
            self.rounds.dispatch(self.trainer.progress.version)
            return self._spare(payloads)
        try:
            return self._update(calls)
        finally:  # also after a failed update: without a next round nothing would ever happen again
            if self.trainer.outcome is None and self.failure is None:
                self._dispatch()

    def _spare(self, payloads: Sequence[Any]) -> list[None]:
        """Settle the payloads of an unused round as dropped."""
        self.trainer.outlets.settle(("spare", payload) for payload in payloads)
        return [None]

    def _dispatch(self) -> None:
        assert self.rounds is not None
        try:
            self.rounds.dispatch(self.trainer.progress.version)
        except Exception as error:  # for example, no broker: the update is made, and the rounds' watch tries again
            logger.warning("could not dispatch the next round, trying again soon: %s", error)

    def _update(self, calls: Sequence[Any]) -> list[Any]:
        return self._looked_after(lambda: self.trainer.learn(calls))

    def _looked_after(self, update: Callable[[], T]) -> T:
        """Make an update, and give up after several failures in a row: a single one may be due to the data."""
        led = self.trainer.leads
        try:
            outcomes = update()
        except Stopping as error:  # other learners, if any, get the data
            raise Reject(str(error), requeue=True) from None
        except (NotFinite, ConfigurationError, RanksDiffer) as error:  # the next update would have the same fault
            self.failure_kind = type(error)
            self.give_up(f"{error}; {self.trainer.state.last_good()}", by_user=True)
            raise
        except Exception as error:
            self._failures += 1
            if self._failures >= FAILURES:
                self.give_up(f"{FAILURES} updates in a row failed, the last with {type(error).__name__}: {error}")
            raise
        self._failures = 0
        if self.trainer.leads and not led:  # the rank that led before was lost
            self.trainer.outlets.fire_status(always=True)
        attempts = self.trainer.outlets.attempts
        if attempts.troubles >= TROUBLES and attempts.troubled_for >= TROUBLED_FOR:
            self.give_up(f"for {attempts.troubled_for:.0f} s, after each update, it {attempts.trouble}")
        self.report()
        return outcomes

    def say_waiting(self, what: str) -> None:
        """Log, and fire as a status, that the learner waits, and for what."""
        logger.info("waiting: %s", what)
        self.trainer.outlets.fire_status(always=True, waiting=what)

    def report(self) -> None:
        """Log the figures every few seconds: without a launcher, a learner shows nothing but its log."""
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + REPORT_EVERY
            logger.info("%s, %.0f steps/s", self.figures(), self.trainer.progress.steps_per_second)

    def figures(self) -> str:
        """Return the figures of training as text."""
        progress, env = self.trainer.progress, self.config.env
        mean = "no" if progress.mean_return is None else f"{returns.shown(progress.mean_return)} as"
        return (
            f"{progress.steps:,} steps, {mean} mean return of the last {env.goal_episodes} episodes"
            f"{'' if env.goal is None else f' (goal {env.goal:g})'}, weight version {progress.version}"
        )

    def round_failed(self, round_id: str) -> None:
        """Run the errback of a round's chord: a rollout was lost or expired. One that failed answers with the error."""
        assert self.rounds is not None
        self.rounds.failed(round_id)

    def give_up(self, reason: str, by_user: bool = False) -> None:
        """End this process with an error; `by_user`: in the user's code or settings."""
        self.failure, self.by_user = reason, by_user
        self.begun.set()
        self._stop_asking()
        stop_worker()

    def status(self, status: int) -> int:
        """Return the exit status. Raises ConfigurationError or NotFinite for failures of the user's."""
        if self.failure is None:
            return status
        if self.by_user:
            raise self.failure_kind(self.failure)
        logger.error("training cannot go on: %s", self.failure)
        return 1

    def _rank_and_size(self) -> tuple[int, int]:
        """Return this learner's rank and the number of learners."""
        ranks = self.trainer.ranks
        return (0, 1) if ranks is None else (ranks.rank, ranks.size)

    def is_its_turn(self) -> bool:
        """Return whether the next round may begin. The one player of a plain run waits for nobody."""
        return True

    def on_ready(self) -> None:
        """Begin training, as the worker consumes now; several learners, which wait for each other, on a thread."""
        if self.trainer.ranks is None:
            self._begin()
        else:
            threading.Thread(target=self._begin_together, name="joining", daemon=True).start()

    def _begin_together(self) -> None:
        try:
            self.trainer.join()
            self._begin()
        except Stopping:
            self.begun.set()
        except ConfigurationError as error:
            self.give_up(str(error), by_user=True)
        except Exception as error:
            logger.exception("this learner could not begin")
            self.give_up(f"this learner could not begin: {type(error).__name__}: {error}")

    def _begin(self) -> None:
        """Publish weights, so that waiting actors can start, then dispatch the first round."""
        if self.trainer.leads:
            self.trainer.outlets.publish()
        self.trainer.outlets.fire_status(always=True)
        self.trainer.outlets.overlap()
        self.announce()
        self.begun.set()
        if self.rounds is not None:
            self.rounds.start(self.trainer.progress.version)
        elif self.trainer.replaying is not None:
            self.trainer.replaying.start(self._looked_after)
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def _keep(self) -> None:
        while not self.ended.wait(KEEP_EVERY):
            try:
                self.keep()
            except (redis.RedisError, WarrenError) as error:
                logger.warning("the pool cannot be looked after: %s", error)
            except Exception:  # if this thread ended, nothing would be kept any more, and nobody would notice
                logger.exception("what a learner keeps was not looked after; trying again in %g s", KEEP_EVERY)

    def keep(self) -> None:
        """Announce this learner and republish lost weights; called every few seconds, on a thread."""
        self.announce()
        # Actors that started after Redis lost the weights would wait for an update, and the update for their segments.
        self.trainer.outlets.publisher.restore()

    def announce(self) -> None:
        """Tell actors on this host that segments may come by shared memory."""
        if self.reader is not None:
            try:
                self.reader.announce()
            except redis.RedisError as error:  # until Redis is back, actors send by claim check, or not at all
                logger.debug("actors were not told that this learner is here: %s", error)

    def end(self) -> None:
        """Stop the background threads and withdraw the shared-memory announcement."""
        self.ended.set()
        if self.reader is not None:
            try:
                self.reader.leave()
            except redis.RedisError as error:  # the announcement holds for some seconds more
                logger.warning("actors were not told that this learner has ended: %s", error)

    def log_end(self) -> None:
        """Log how far training got, as the last step."""
        logger.info("player %s: %s", self.player, self.figures())

    def on_stopping(self) -> None:
        """Ask for no new rounds or updates, and end waits for other ranks; work under way is finished."""
        if self.trainer.ranks is not None:
            self.trainer.ranks.stop()
            self.begun.set()
        self._stop_asking()

    def _stop_asking(self) -> None:
        if self.rounds is not None:
            self.rounds.stop()
        if self.trainer.replaying is not None:
            self.trainer.replaying.stop()
