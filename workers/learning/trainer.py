"""Training one player: trajectories in, an update, new weights out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from celery.utils.log import get_logger

from agents import checkpoints
from agents.trajectories import Trajectory
from tasks.events import STATUS, WEIGHTS
from tasks.worker.running import acknowledge_after
from warren.errors import BrokerError
from warren.files import read_json, write_whole
from workers.config.schema import Sampling
from workers.learning import curve
from workers.learning.allreduce.ranks import Ranks, Stopping
from workers.learning.attempts import Attempts
from workers.learning.data_source import Arrived, Batch
from workers.learning.metrics import MetricsLog
from workers.learning.publisher import Publisher
from workers.learning.received import Received
from workers.learning.recorder import Recorder
from workers.learning.settlement import Settlement
from workers.learning.updated_player import UpdatedPlayer
from workers.runtime.recorded import FILE as RECORDED
from workers.runtime.recorded import Recorded
from workers.runtime.run_status import verdict
from workers.runtime.session import Session

logger = get_logger(__name__)

STATUS_EVERY = 0.25  # s between status events
CHECKPOINT_AGAIN = 5.0  # s until one that could not be written is tried again


class Trainer(UpdatedPlayer):
    """The learner's half that knows nothing of queues: `learn` is the body of the learn task.

    One of several `ranks` makes each update together with the others, each on its share of it. The lowest of them
    leads: it alone publishes, and writes metrics and checkpoints.
    """

    weights_event, status_event = WEIGHTS, STATUS

    def __init__(
        self, session: Session, folder: Path, on_finished: Callable[[], None], ranks: Ranks | None = None
    ) -> None:
        super().__init__(session, folder, ranks)
        self._on_finished = on_finished
        self.outcome: dict[str, Any] | None = None
        self.attempts = Attempts()
        self._checkpoint_at = time.monotonic() + self.config.checkpoint_every
        self._status_at = 0.0
        self._idle_since: float | None = None  # when the last call of `learn` returned
        self._recorded: Recorded | None = None  # what a policy saw not long before the next checkpoint
        self.publisher = Publisher(session, self.player, self.weights_event, self.timing)
        self.recorder = Recorder(self.timing)
        self.settlement = Settlement(session)
        self.log: MetricsLog | None = None  # of who leads
        if ranks is None:
            self.log = MetricsLog(folder, last_version=self.first_version)

    def after_update(self) -> None:
        """Called after each update, before its weights are published; by all ranks, at the same one."""

    def verdict(self) -> str | None:
        """How the run ended, None while there is more to do."""
        return verdict(self.config, self.progress.steps, self.progress.mean_return)

    def overlap(self) -> None:
        """From now on write metrics and checkpoints on a thread; where no round waits for them, publish on another."""
        self.recorder.start()
        if self.config.sampling is not Sampling.gathered:
            self.settlement.start()
            self.publisher.start(self.config.publish_every, self.settlement.wait)

    def publish(self) -> None:
        """Put the weights into the pool and fire them to every actor; an actor whose event is lost reads them there."""
        self.progress.version = self.publisher.publish(self.policy.state_dict(), self.stamp())

    def join(self) -> None:
        """As of UpdatedPlayer; whoever leads from now on writes the metrics."""
        super().join()
        if not self.leads:
            self._close_log()
        elif self.log is None:
            self.log = MetricsLog(self.folder, last_version=self.progress.version)

    def made_of(self, trajectories: Sequence[Trajectory]) -> None:
        """Keep some of it for the next checkpoint."""
        if self.leads and (self._recorded is None or time.monotonic() >= self._checkpoint_at):
            self._recorded = Recorded.of(trajectories[0])

    def next_version(self) -> int:
        """Above all that were published."""
        return max(self.progress.version, self.publisher.version) + 1

    def _close_log(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    def skip_past(self, version: int) -> None:
        """Publish these weights under a version above `version`, which actors have had before."""
        self.progress.version = max(self.progress.version, version + 1)
        if self.leads:
            self.publish()

    def restore_published(self) -> None:
        """See Publisher.restore."""
        self.publisher.restore()

    def _stamped(self) -> bytes:
        return self.publisher.stamped(self.policy.state_dict(), self.stamp())[2]

    def _hand_out(self) -> None:
        """Publish now, or on the publisher's thread."""
        if self.publisher.running:
            copies = {name: tensor.detach().clone() for name, tensor in self.policy.state_dict().items()}
            self.publisher.offer(copies, self.stamp())
        else:
            self.publish()

    def learn(self, calls: Sequence[Any]) -> list[Any]:
        """One update on the payloads of `calls`; each call gives one payload or a list of them.

        Returns None for each call, or the error of a call of which nothing can be used: its payload is damaged, its
        trajectory is not as this run's are, or no update can be made with it. It fails alone; such payloads are counted
        (`Progress.refused`). Raises what the algorithm raises where no one payload is at fault, having used nothing.
        What cannot be done after an update (a server is away, the disk is full) is logged and tried again later: data
        that was trained on is never given up as not used.
        """
        if self._idle_since is not None:
            self.timing.add("wait for data", time.perf_counter() - self._idle_since)
        try:
            return self._learn(calls)
        finally:
            self._idle_since = time.perf_counter()

    def _learn(self, calls: Sequence[Any]) -> list[Any]:
        received = Received(calls, self._refuse)
        with self.timing.stage("check"):
            received.read(self.spec, self._take)
        learned = False
        if self.source.ready():
            batch = self.source.sample()
            if self.outcome is None:
                received.learned(batch, self._timed_update(batch, received))
                learned = True
            else:
                received.drop(batch.arrived, "unused")
        # Before anybody can get the new weights: a learner that is killed in between leaves segments that count as
        # learned and weights that are lost, and not weights of segments that will be learned from again.
        self.settle(received.became)
        if learned:
            self._after_update()
        return received.outcomes()

    def _take(self, arrived: Arrived) -> str | None:
        """Keep it for an update; as what all of it is dropped, where it is."""
        expired = int(arrived.payload.get("expired", 0))
        steps = arrived.trajectory.num_steps
        if self.is_of_another(arrived.payload):
            self.progress.reset_steps += steps + expired
            return "reset"
        dropped = self.source.add(arrived, self.progress.version)
        self.progress.stale_steps += dropped + expired
        return "stale" if dropped == steps else None

    def _timed_update(self, batch: Batch, received: Received) -> dict[int, Exception]:
        """See `update`; where no update can be made, all that was received is settled as failed."""
        try:
            with self.timing.stage("update"):
                return self.update(batch)
        except Stopping:  # all of it goes back to its queue
            raise
        except Exception:
            self.settle([*received.became, *(("failed", arrived.payload) for arrived in batch.arrived)])
            raise

    def settle(self, became: Iterable[tuple[Any, ...]] = ()) -> None:
        """Tell the ledger what became of payloads, each as Settlement.add takes it; later, while Redis is away.

        Beside the next update, where nobody waits for a round: the messages are acknowledged when it was told.
        """
        for one in became:
            self.settlement.add(*one)
        told = self.settlement.soon(self._tell)
        if told is not None:
            acknowledge_after(told)

    def _tell(self) -> None:
        with self.timing.stage("ledger: settle"):
            self.attempts.make("write down what was learned from", self.settlement.settle)

    def _refuse(self, payload: Any, error: Exception) -> None:
        self.progress.refused += 1
        given = payload if isinstance(payload, Mapping) else {}
        logger.error(
            "segment %s of %s was refused (%d so far): %s: %s",
            given.get("number"), given.get("source"), self.progress.refused, type(error).__name__, error,
        )  # fmt: skip

    def _after_update(self) -> None:
        attempts = self.attempts
        attempts.begin()
        attempts.make("do what follows an update", self.after_update)
        if not self.leads:
            if state := self.verdict():
                self.finish(state)
            return
        with self.timing.stage("hand out weights"):
            attempts.make("publish the weights", self._hand_out)
        with self.timing.stage("hand on figures"):
            figures, losses = self.progress.figures(), self.progress.losses
            write = partial(self.recorder.do, "write the metrics", partial(self._log, figures, losses), may_fail=True)
            attempts.make("write the metrics", write, may_fail=True)
        if state := self.verdict():
            self.finish(state)
        elif time.monotonic() >= self._checkpoint_at:
            self._checkpoint_at = time.monotonic() + self.config.checkpoint_every  # also for one that fails
            with self.timing.stage("hand on a checkpoint"):
                attempts.make("write a checkpoint", self.checkpoint)
        with self.timing.stage("hand on figures"):
            self.fire_status()
        attempts.end(self.publisher.failing or self.recorder.failing)

    def _log(self, figures: Mapping[str, Any], losses: Mapping[str, float]) -> None:
        if self.log is not None:
            self.log.write(figures, losses)

    def finish(self, state: str) -> None:
        """The run is over: nothing more is learned."""
        self.outcome = {
            "state": state,
            "steps": self.progress.steps,
            "mean_return": self.progress.mean_return,
            "seconds": self.progress.training_seconds,
        }
        self._on_finished()

    def checkpoint(self) -> None:
        """Write a checkpoint and drop the oldest over the configured number."""
        self._checkpoint_at = time.monotonic() + self.config.checkpoint_every
        name, moment = f"{self.progress.version:08d}", self.moment()
        folder, keep = self.folder / "checkpoints", self.config.checkpoints_kept

        def write() -> None:
            self.settlement.wait()  # as weights do: what they were learned from is not learned from again
            try:
                checkpoints.write(folder, name, moment, keep)
            except OSError:
                self._checkpoint_at = min(self._checkpoint_at, time.monotonic() + CHECKPOINT_AGAIN)
                raise

        self.recorder.do("write a checkpoint", write)
        if (recorded := self._recorded) is not None:
            file = self.folder / RECORDED
            write_recorded = partial(recorded.write, file, self.policy)
            self.recorder.do("write recorded observations", write_recorded, may_fail=True)

    def fire_status(self, state: str = "training", always: bool = False, waiting: str | None = None) -> None:
        """Tell whoever watches how far it is, a few times a second at most, and what is waited for."""
        now = time.monotonic()
        if not self.leads:
            return
        if always or now >= self._status_at:
            self._status_at = now + STATUS_EVERY
            more = {"losses": self.progress.losses, "waiting": waiting, "trouble": self.recorder.trouble}
            figures = {"state": state, **self.progress.figures(), **more}
            self.recorder.do("tell how far it is", lambda: self._fire(self.status_event, figures))

    def _fire(self, name: str, payload: Any) -> None:
        # Without a broker an update is still an update, and what it learned from is used.
        try:
            self.session.events.fire(name, payload)
        except BrokerError as error:
            logger.warning("%s", error)

    def close(self) -> None:
        """Write the newest checkpoint, the outcome, the learning curve; tell everyone that it is over."""
        self.settle_down()
        self.say_weights()
        if not self.leads:
            self.settle()
            self.leave()
            return
        outcome = self.outcome or {"state": "stopped", "steps": self.progress.steps}
        outcome["weights"] = self.digest()
        outcome["timing"] = self.timing.shares() or read_json(self.folder / "outcome.json").get("timing", {})
        title = f"{self.config.env.id}, {self.config.sampling.value}"
        self.settle()
        if not self.broken:
            self.attempts.make("write the last checkpoint", self.checkpoint)
        self.attempts.make("close the metrics", self._close_log)
        self.attempts.make(
            "write the outcome", lambda: write_whole(self.folder / "outcome.json", json.dumps(outcome, indent=1) + "\n")
        )
        self.attempts.make("draw the learning curve", lambda: curve.draw(self.folder, title, self.config.env.goal))
        self.fire_status(outcome["state"], always=True)
        self.leave()

    def settle_down(self) -> None:
        """End what overlaps, with all of it done, and say where the time went."""
        self.settlement.stop()
        self.publisher.stop()
        self.recorder.stop()
        if self.progress.updates:
            logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))
