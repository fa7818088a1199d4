"""A replay as a data source: every segment is copied into it, and each update draws from all that it keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from celery.utils.log import get_logger

from agents import Batch, Needs, Update
from agents.replay import Draw, Limiter, build_buffer, saving
from warren.errors import CheckpointError
from workers.config.replay_checks import options_of
from workers.config.schema import Config, Sampling
from workers.learning.data_source import Arrival, UpdateData
from workers.runtime.segment_ledger import Count

logger = get_logger(__name__)

FOLDER = "replay"  # in the player's folder, for the part of a replay beyond replay.memory
FILE = "checkpoints/replay.npz"  # in the player's folder, if in_checkpoint is set
REMEMBERED = 1024  # segments, more than can be on their way to one learner


class ReplaySource:
    """A DataSource that keeps all segments; a limiter decides how often updates draw from them.

    `stored`: segments and steps since the run began. If the replay of a checkpoint was loaded, those that arrived after
    that checkpoint are not counted.
    """

    def __init__(self, config: Config, needs: Needs, folder: Path, progress: Callable[[], float]) -> None:
        """`progress` returns the part of the run that is over, which the weights' exponent follows."""
        given = config.replay
        self._config, self._slots, self._progress = given, given.batch, progress
        options = options_of(given, needs, config.seed, folder / FOLDER)
        own = given.buffer, given.buffer_settings
        self._new_buffer = partial(build_buffer, *own, options, given.in_checkpoint)
        self.buffer = self._new_buffer()
        self._gathered = config.sampling is Sampling.gathered
        self.limiter = Limiter(given.samples_per_insert, given.begin_at, given.error_buffer or 0.0)
        self.stored = Count()
        self._newest: deque[tuple[str, int]] = deque(maxlen=REMEMBERED)  # source and number of those stored last
        self._draw: Draw | None = None  # the last draw
        self._file = folder / FILE
        if given.in_checkpoint and self._file.exists():
            self._load()

    def add(self, arrived: Arrival, version: int) -> int:
        """See DataSource: nothing is too old. Raises ConfigurationError for a segment that the replay cannot hold."""
        trajectory, name = arrived.trajectory, _name_of(arrived)
        self.buffer.add(trajectory, *name)
        self._newest.append(name)
        self.stored = Count(self.stored.segments + 1, self.stored.steps + trajectory.num_steps)
        if self._config.error_buffer is None and not self._gathered:
            an_arrival = self.limiter.samples_per_insert * trajectory.num_steps
            self.limiter.error_buffer = max(self.limiter.error_buffer, an_arrival + self._drawn)
        self.limiter.inserts += trajectory.num_steps
        return 0

    def holds(self, arrived: Arrival) -> bool:
        """Return whether a segment is stored already: it is delivered again after its learner was killed."""
        return _name_of(arrived) in self._newest

    def has_room(self, steps: int) -> bool:
        """Return whether `steps` more may be stored before the next update, or no update can be made."""
        return self.limiter.may_insert(steps) or not self.ready()

    def ready(self) -> bool:
        """See DataSource."""
        return self.limiter.may_sample(self._drawn) and self.buffer.startable > 0

    @property
    def _drawn(self) -> int:
        """Number of sequences that an update draws."""
        return self._slots * self.buffer.together

    def sample(self) -> UpdateData:
        """See DataSource."""
        given = self._config
        exponent = given.weight_exponent + self._progress() * (given.weight_exponent_end - given.weight_exponent)
        self._draw = draw = self.buffer.draw(self._slots, exponent)
        self.limiter.samples += self._drawn
        return UpdateData(Batch([draw.trajectory], draw.weights))

    def save(self) -> None:
        """Write the replay beside a checkpoint, if in_checkpoint is set. Raises OSError when the disk refuses."""
        if self._config.in_checkpoint:
            limits = {"inserts": self.limiter.inserts, "samples": self.limiter.samples}
            counts = {**limits, "stored": self.stored, "newest": list(self._newest)}
            saving.save(self._file, self.buffer, counts)

    def _load(self) -> None:
        try:
            counts = saving.load(self._file, self.buffer)
        except CheckpointError as error:
            logger.warning("the replay of the last checkpoint is not taken up, this one begins empty: %s", error)
            self.buffer = self._new_buffer()  # a damaged file may have been loaded in part
            return
        self.limiter.inserts, self.limiter.samples = counts["inserts"], counts["samples"]
        self.stored = Count(*counts["stored"])
        self._newest.extend((source, number) for source, number in counts.get("newest", ()))
        logger.info("took up a replay of %d steps", len(self.buffer))

    def feedback(self, data: UpdateData, update: Update) -> None:
        """See DataSource. Raises ConfigurationError for invalid priorities."""
        if update.priorities is not None and self._draw is not None:
            self.buffer.set_priorities(self._draw, update.priorities)


def _name_of(arrived: Arrival) -> tuple[str, int]:
    """Return the source and the number of a segment."""
    return str(arrived.payload["source"]), int(arrived.payload["number"])
