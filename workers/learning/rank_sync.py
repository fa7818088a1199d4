"""One learner among the ranks of a player, kept in a ring with the others and in the same state."""

from __future__ import annotations

from collections.abc import Callable

from celery.utils.log import get_logger

from agents import checkpoints
from workers.learning.allreduce.ranks import Ranks
from workers.learning.allreduce.ring import RanksChanged
from workers.learning.allreduce.shares import Share
from workers.learning.course import Course
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState

logger = get_logger(__name__)


class RankSync:
    """Keeps a learner's state equal to that of the other `ranks`; with None, for an only learner, it does nothing.

    Raises redis.RedisError, and ConfigurationError for settings unlike those of the other ranks.
    """

    def __init__(self, state: PlayerState, outlets: Outlets, course: Course, ranks: Ranks | None) -> None:
        self._state, self._outlets, self._course, self._ranks = state, outlets, course, ranks
        self._led = False  # this rank led the ring before
        if ranks is not None:
            ranks.begin(sum(4 * parameter.numel() for parameter in state.policy.parameters()))

    def join(self) -> None:
        """Form a ring with the living ranks, all in the state of the rank that has trained furthest.

        Raises Stopping when this learner was told to stop meanwhile.
        """
        assert self._ranks is not None
        while True:
            self._ranks.join(self._updates_and_version, self._to_bytes, self._load)
            try:
                self._joined()
                break
            except RanksChanged as error:
                logger.warning("%s; forming the ring once more", error)
        if self._state.leads:
            self._outlets.open_metrics(self._state.progress.version)
        else:
            self._outlets.close_metrics()

    def _joined(self) -> None:
        if self._state.leads and not self._led:
            self._course.take_lead()
        self._led = self._state.leads
        if self._state.recipe.has_generations:  # the leader may have begun anew
            self._share()

    def run_on_leader(self, action: Callable[[], None]) -> None:
        """Run `action` on the leading rank, and take over that rank's state; all ranks call this at the same update."""
        if self._ranks is None:
            action()
            return
        try:
            if self._state.leads:
                action()
        finally:  # the others wait for the state, also if the action failed
            try:
                self._share()
            except RanksChanged as error:
                logger.warning("at the end of a period: %s", error)
                self.join()

    def total_share(self, own: Share) -> Share:
        """Wait until every rank has its share of an update; return the sum of all shares.

        Raises RanksChanged, RanksDiffer and Stopping.
        """
        if self._ranks is None:
            return own
        with self._outlets.timing.stage("wait for ranks"):
            return Share.of_all(self._ranks, own, checkpoints.fingerprint(self._state.policy))

    def mean(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the mean of each figure over all ranks."""
        if self._ranks is not None:
            try:
                return self._ranks.mean(metrics)
            except RanksChanged:  # this update is made; the next one will notice
                pass
        return metrics

    def abandon(self) -> None:
        """Leave the ring in the middle of an update, so that the other ranks do not wait for this one."""
        if self._ranks is not None:
            self._ranks.abandon()

    def log_digest(self) -> None:
        """Log the digest of the weights that this rank ends with."""
        if self._ranks is not None:
            rank, size = self._ranks.rank, self._ranks.size
            logger.info("rank %d of %d ends with weights %s", rank, size, self._state.digest())

    def leave(self) -> None:
        """Leave the ranks for good."""
        if self._ranks is not None:
            self._ranks.leave()

    def _share(self) -> None:
        """Take over the state of the rank that leads. Raises RanksChanged."""
        assert self._ranks is not None
        self._ranks.share(self._to_bytes, self._load)

    def _updates_and_version(self) -> tuple[int, int]:
        return self._state.progress.updates, self._state.progress.version

    def _to_bytes(self) -> bytes:
        return checkpoints.to_bytes(self._state.moment(extra=self._course.extra_state()))

    def _load(self, data: bytes) -> None:
        moment = checkpoints.from_bytes(data, "the state of another rank")
        self._course.load_extra_state(moment.meta["extra"])
        self._state.restore(moment)
