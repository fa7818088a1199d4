"""Training one player: trajectories in, an update, new weights out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery.utils.log import get_logger

from agents import Algorithm
from workers.learning.allreduce.ranks import Ranks, Stopping
from workers.learning.course import Course
from workers.learning.data_source import Arrival, UpdateData
from workers.learning.delivery import Delivery
from workers.learning.metrics import Progress
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState
from workers.learning.rank_sync import RankSync
from workers.learning.replay_source import ReplaySource
from workers.learning.replaying import Replaying
from workers.learning.sources import SOURCES
from workers.learning.updater import Updater

logger = get_logger(__name__)


class Trainer:
    """The half of a learner that does not deal with queues: `learn` is the body of the learn task.

    Several `ranks` make each update together, each on its share of the data. The lowest of them leads: it alone
    publishes, and writes metrics and checkpoints. `on_finished` is called once training is over.
    """

    def __init__(
        self,
        state: PlayerState,
        outlets: Outlets,
        course: Course,
        on_finished: Callable[[], None],
        ranks: Ranks | None = None,
    ) -> None:
        self.state, self.outlets, self.course, self.ranks = state, outlets, course, ranks
        self._on_finished = on_finished
        self._sync = RankSync(state, outlets, course, ranks)
        self._source = source = SOURCES[state.algorithm.needs.source](state)
        self._updater = Updater(state, outlets, course, self._sync, source)
        self.outcome: dict[str, Any] | None = None
        self.replaying: Replaying | None = None  # set if updates draw from a replay
        if isinstance(source, ReplaySource):
            outlets.keep_replay(source)
            self.replaying = Replaying(state, outlets, self._updater, source, self._after_update, self._is_over)
        self._idle_since: float | None = None  # when the last call of `learn` returned

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that trains the player."""
        return self.state.algorithm

    @property
    def progress(self) -> Progress:
        """The figures of training so far."""
        return self.state.progress

    @property
    def leads(self) -> bool:
        """True if this learner publishes, and writes metrics and checkpoints."""
        return self.state.leads

    def join(self) -> None:
        """Form a ring with the other ranks. Raises Stopping when this learner was told to stop meanwhile."""
        self._sync.join()

    def skip_past(self, version: int) -> None:
        """Publish these weights under a version above `version`, which actors have had before."""
        self.progress.version = max(self.progress.version, version + 1)
        if self.leads:
            self.outlets.publish()

    def learn(self, calls: Sequence[Any]) -> list[Any]:
        """Make one update on the payloads of `calls`; each call gives one payload or a list of them.

        Returns for each call None, or an error if nothing of it can be used: its payload is damaged, its trajectory
        does not fit this run, or no update can be made with it. Only that call fails; such payloads are counted
        (`Progress.refused`). Raises what the algorithm raises if no single payload is at fault, having used nothing.
        Steps that fail after an update (a server is away, the disk is full) are logged and tried again later: data that
        was trained on never counts as unused.
        """
        if self._idle_since is not None:
            self.outlets.timing.add("wait for data", time.perf_counter() - self._idle_since)
        try:
            return self._learn(calls)
        finally:
            self._idle_since = time.perf_counter()

    def _is_over(self) -> bool:
        return self.outcome is not None

    def _learn(self, calls: Sequence[Any]) -> list[Any]:
        delivery = Delivery(calls, self._refuse)
        if self.replaying is not None:
            return self.replaying.learn(calls, delivery)
        with self.outlets.timing.stage("check"):
            delivery.read(self.state.spec, self._take)
        learned = False
        if self._source.ready():
            data = self._source.sample()
            if self.outcome is None:
                delivery.learned(data, self._update(data, delivery))
                learned = True
            else:
                delivery.drop(data.arrived, "unused")
        # Settle before any process can get the new weights. If this learner is killed in between, the segments count as
        # learned, and the weights are lost. In the other order actors could have weights whose segments are learned
        # again.
        self.outlets.settle(delivery.became)
        if learned:
            self._after_update()
        return delivery.outcomes()

    def _take(self, arrived: Arrival) -> str | None:
        """Keep a segment for an update and return None; if all of it is dropped, return the reason."""
        expired = int(arrived.payload.get("expired", 0))
        steps = arrived.trajectory.num_steps
        if self.state.is_stale_generation(arrived.payload):
            self.progress.reset_steps += steps + expired
            return "reset"
        dropped = self._source.add(arrived, self.progress.version)
        self.progress.stale_steps += dropped + expired
        return "stale" if dropped == steps else None

    def _update(self, data: UpdateData, delivery: Delivery) -> dict[int, Exception]:
        """Make an update (see Updater); if none can be made, settle all payloads as failed."""
        try:
            with self.outlets.timing.stage("update"):
                return self._updater.update(data)
        except Stopping:  # all of it goes back to its queue
            raise
        except Exception:
            self.outlets.settle([*delivery.became, *(("failed", arrived.payload) for arrived in data.arrived)])
            raise

    def _refuse(self, payload: Any, error: Exception) -> None:
        self.progress.refused += 1
        given = payload if isinstance(payload, Mapping) else {}
        logger.error(
            "segment %s of %s was refused (%d so far): %s: %s",
            given.get("number"), given.get("source"), self.progress.refused, type(error).__name__, error,
        )  # fmt: skip

    def _after_update(self, publishing: bool = True, telling: bool = True) -> None:
        """Run the steps that follow updates or an arrival; `publishing`: hand out weights, `telling`: write metrics."""
        outlets = self.outlets
        attempts, timing = outlets.attempts, outlets.timing
        attempts.begin()
        attempts.make("do what follows an update", self._end_period_if_over)
        if not self.leads:
            if state := self.course.verdict():
                self.finish(state)
            return
        if publishing:
            with timing.stage("hand out weights"):
                attempts.make("publish the weights", outlets.hand_out)
        state = self.course.verdict()
        if telling or state:
            with timing.stage("hand on figures"):
                attempts.make("write the metrics", outlets.write_metrics, may_fail=True)
        if state:
            self.finish(state)
        elif outlets.checkpoint_is_due():
            with timing.stage("hand on a checkpoint"):
                attempts.make("write a checkpoint", outlets.checkpoint)
        with timing.stage("hand on figures"):
            outlets.fire_status()
        attempts.end(outlets.publisher.failing or outlets.recorder.failing)

    def _end_period_if_over(self) -> None:
        if self.course.period_is_over():
            self._sync.run_on_leader(self.course.end_period)

    def finish(self, state: str) -> None:
        """End training for good: nothing more is learned."""
        self.outcome = {
            "state": state,
            "steps": self.progress.steps,
            "mean_return": self.progress.mean_return,
            "seconds": self.progress.training_seconds,
        }
        self._on_finished()

    def close(self) -> None:
        """Finish what is under way, let the course write its last results, and leave the other ranks."""
        if self.replaying is not None:
            self.replaying.join()
        self.outlets.drain()
        self._sync.log_digest()
        if self.leads:
            self.course.close(self.outcome)
        else:
            self.outlets.settle()
        self._sync.leave()
