"""Ways out for the results of updates: weights, the segments' ledger, metrics, status events, checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from celery.utils.log import get_logger

from agents import checkpoints
from agents.trajectories import Trajectory
from tasks.worker.running import acknowledge_after
from warren.errors import BrokerError
from warren.log_fields import tell
from workers.config import trackers
from workers.config.schema import Sampling
from workers.config.trackers import TENSORBOARD, Tracked
from workers.learning.attempts import Attempts
from workers.learning.metrics import MetricsLog
from workers.learning.player_state import PlayerState
from workers.learning.publisher import Publisher
from workers.learning.recorder import Recorder
from workers.learning.replay_source import ReplaySource
from workers.learning.settlement import Settlement
from workers.learning.trackers.told import Trackers, hyperparameters
from workers.runtime.metrics_endpoint import Sample, of_learner, of_stages
from workers.runtime.observation_sample import FILE as RECORDED
from workers.runtime.observation_sample import ObservationSample
from workers.runtime.session import Session
from workers.runtime.timing import Timing

logger = get_logger(__name__)

STATUS_EVERY = 0.25  # s between status events
CHECKPOINT_AGAIN = 5.0  # s until a checkpoint that could not be written is tried again


class Outlets:
    """The publisher, recorder, settlement and metrics of one player's learner.

    Of several learners only the one that leads publishes and writes. Failures are logged and counted in `attempts`.
    """

    def __init__(self, session: Session, state: PlayerState) -> None:
        self._session, self._state, self._config = session, state, session.config
        self._folder = state.recipe.folder
        self.timing, self.attempts = Timing(), Attempts()
        self.publisher = Publisher(session, state.recipe.player, state.recipe.weights_event, self.timing)
        self.recorder = Recorder(self.timing)
        self.settlement = Settlement(session)
        self._metrics: MetricsLog | None = None
        self.newest: tuple[dict[str, Any], dict[str, float]] | None = None  # figures and losses of the last update
        self._checkpoint_at = time.monotonic() + self._config.checkpoint_every
        self._status_at = 0.0
        self._replay: ReplaySource | None = None
        self._sample: ObservationSample | None = None  # seen by the policy not long before the next checkpoint
        if state.leads:
            self.open_metrics(state.first_version)

    def overlap(self) -> None:
        """From now on write metrics and checkpoints on a thread; if no round waits, settle and publish on others."""
        self.recorder.start()
        if self._config.sampling is not Sampling.gathered:
            self.settlement.start()
            self.publisher.start(self._config.publish_every, self.settlement.wait)

    def drain(self) -> None:
        """Let the threads finish their work and end, and log where the time went."""
        self.settlement.stop()
        self.publisher.stop()
        self.recorder.stop()
        if self._state.progress.updates:
            logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))

    # Weights.

    def publish(self) -> None:
        """Put the weights into the pool and fire them to every actor; an actor that misses the event reads the pool."""
        state = self._state
        state.progress.version = self.publisher.publish(state.policy.state_dict(), state.stamp())

    def hand_out(self) -> None:
        """Publish now, or on the publisher's thread."""
        if self.publisher.running:
            copies = {name: tensor.detach().clone() for name, tensor in self._state.policy.state_dict().items()}
            self.publisher.offer(copies, self._state.stamp())
        else:
            self.publish()

    def pool_weights(self) -> None:
        """Put the weights into the pool, after those that the publisher's thread still holds; do not fire them."""
        if self.publisher.running:
            self.publisher.flush()  # or older weights could come after these
        state = self._state
        weights = self.publisher.stamped(state.policy.state_dict(), state.stamp())
        self._session.pool.put(state.recipe.player, *weights)

    def pool_average(self, rate: float, name: str) -> None:
        """Put the average of the weights at `rate` into the pool as the newest model of `name`."""
        state = self._state
        stamp = {**state.stamp(), "player": name, "average": rate}
        data = checkpoints.encode_weights(state.averages.of(rate, state.policy), stamp)
        self._session.pool.put(name, stamp["version"], stamp["step"], data)

    def next_version(self) -> int:
        """Return a version above all that were made or published."""
        return max(self._state.progress.version, self.publisher.version) + 1

    # The ledger.

    def settle(self, became: Iterable[tuple[Any, ...]] = ()) -> None:
        """Tell the ledger what became of payloads, each as Settlement.add takes it; later, if Redis is away.

        If no round waits for it, this is done beside the next update; the messages are acknowledged afterwards.
        """
        for one in became:
            self.settlement.add(*one)
        told = self.settlement.soon(self._tell)
        if told is not None:
            acknowledge_after(told)

    def _tell(self) -> None:
        with self.timing.stage("ledger: settle"):
            self.attempts.make("write down what was learned from", self.settlement.settle)

    # Figures.

    def open_metrics(self, version: int) -> None:
        """Continue metrics.jsonl after the point of that version, unless it is open."""
        if self._metrics is None:
            settings = hyperparameters(self._config)
            board = TENSORBOARD in self._config.trackers
            self._metrics = MetricsLog(self._folder, version, hyperparameters=settings, has_board=board)
            config, player = self._config, self._state.recipe.player
            told = Tracked(config.run or "", player, self._folder, config.project, version, settings)
            self._trackers = Trackers(trackers.made(config.trackers), told)

    def close_metrics(self) -> None:
        """Close metrics.jsonl, if it is open."""
        if self._metrics is not None:
            self._metrics.close()
            self._metrics = None
            self._trackers.end()

    def write_metrics(self) -> None:
        """Write a line of metrics, soon."""
        figures, losses = self._state.progress.figures(), self._state.progress.losses
        self.newest = figures, dict(losses)
        tell(version=figures["version"])

        def write() -> None:
            if self._metrics is not None:
                self._metrics.write(figures, losses)
                self._trackers.point(figures, losses)

        self.recorder.do("write the metrics", write, may_fail=True)

    def samples(self) -> Iterator[Sample]:
        """Yield this learner's metrics for Prometheus; may be called from any thread."""
        yield from of_stages(self.timing.shares())
        if (newest := self.newest) is not None:
            yield from of_learner(self._state.recipe.player, *newest, self.recorder.trouble)

    def fire_status(self, state: str = "training", always: bool = False, waiting: str | None = None) -> None:
        """Fire a status event: the progress, and what training waits for; a few per second, unless `always`."""
        now = time.monotonic()
        if not self._state.leads:
            return
        if always or now >= self._status_at:
            self._status_at = now + STATUS_EVERY
            progress = self._state.progress
            more = {"losses": progress.losses, "waiting": waiting, "trouble": self.recorder.trouble}
            figures = {"state": state, **progress.figures(), **more}
            self.recorder.do("tell how far it is", partial(self._fire, self._state.recipe.status_event, figures))

    def _fire(self, name: str, payload: Any) -> None:
        # Without a broker the update still counts, and its segments are used.
        try:
            self._session.events.fire(name, payload)
        except BrokerError as error:
            logger.warning("%s", error)

    # Checkpoints.

    def keep_sample(self, trajectories: Sequence[Trajectory]) -> None:
        """Keep some observations of an update for the next checkpoint, if they are not too old by then."""
        if self._state.leads and (self._sample is None or self.checkpoint_is_due()):
            self._sample = ObservationSample.of(trajectories[0])

    def keep_replay(self, replay: ReplaySource) -> None:
        """Tell the ledger with how much of all that was ever stored this replay begins."""
        self._replay = replay
        self.attempts.make("write down what of the replay was kept", lambda: self.settlement.keep(replay.stored))

    def checkpoint_is_due(self) -> bool:
        """Return whether it is time for a checkpoint."""
        return time.monotonic() >= self._checkpoint_at

    def checkpoint_soon(self) -> None:
        """Have a checkpoint written after the next update."""
        self._checkpoint_at = 0.0

    def checkpoint(self) -> None:
        """Write a checkpoint, soon, and drop the oldest over the configured number."""
        self._checkpoint_at = time.monotonic() + self._config.checkpoint_every  # also if it fails
        if self._replay is not None:
            with self.timing.stage("write the replay"):  # separately: a disk may have room for weights alone
                save = partial(self._write, self._replay.save)
                self.attempts.make("write the replay", partial(self.recorder.do_now, "write the replay", save))
        name, moment = f"{self._state.progress.version:08d}", self._state.moment()
        folder, keep = self._folder / "checkpoints", self._config.checkpoints_kept
        write = partial(checkpoints.write, folder, name, moment, keep)
        self.recorder.do("write a checkpoint", partial(self._write, write))
        if self._sample is not None:
            write_sample = partial(self._sample.write, self._folder / RECORDED, self._state.policy)
            self.recorder.do("write recorded observations", write_sample, may_fail=True)

    def _write(self, write: Callable[[], object]) -> None:
        """Write a part of a checkpoint, once the segments behind it are settled, so that none of them comes again."""
        self.settlement.wait()
        try:
            write()
        except OSError:
            self._checkpoint_at = min(self._checkpoint_at, time.monotonic() + CHECKPOINT_AGAIN)
            raise
