"""One player's updates: each on a batch, by one learner or by several ranks together, without what is at fault."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from celery.utils.log import get_logger

from agents import Update, checkpoints
from agents.algorithms.contract import not_asked_for
from agents.algorithms.peers import ALONE
from agents.trajectories import Trajectory, concatenate
from warren.errors import ConfigurationError, LeagueError, NotFinite
from workers.learning.allreduce.ranks import Ranks, Stopping
from workers.learning.allreduce.ring import RanksChanged
from workers.learning.allreduce.shares import RanksDiffer, Share
from workers.learning.data_source import Batch, DataSource, OnPolicyQueue
from workers.learning.faulty_trajectories import faulty
from workers.learning.trained_player import TrainedPlayer
from workers.runtime.session import Session
from workers.runtime.timing import Timing

logger = get_logger(__name__)

# What no single segment can be at fault for: their numbers were looked at.
NO_SEGMENTS = (NotFinite, ConfigurationError, LeagueError, RanksDiffer, Stopping)


class UpdatedPlayer(TrainedPlayer):
    """A TrainedPlayer and its updates; one of several `ranks` makes each together with the others."""

    def __init__(self, session: Session, folder: Path, ranks: Ranks | None = None) -> None:
        super().__init__(session, folder, ranks)
        self.broken = False  # whether an update ended halfway: these weights are neither published nor kept
        self.timing = Timing()
        self.source: DataSource = OnPolicyQueue(self.config.max_staleness)
        if ranks is not None:
            ranks.begin(sum(4 * parameter.numel() for parameter in self.policy.parameters()))

    def before_update(self) -> None:
        """Called before each update."""

    def made_of(self, trajectories: Sequence[Trajectory]) -> None:
        """Called after each update that this learner made, with what it was made of here."""

    def next_version(self) -> int:
        """Of the weights that an update has made."""
        return self.progress.version + 1

    # Several ranks.

    @property
    def leads(self) -> bool:
        """Whether this learner publishes, and writes metrics and checkpoints."""
        return self.ranks is None or self.ranks.leads

    def join(self) -> None:
        """Go on with the ranks that live, from the weights, optimizer and progress of the one that is furthest.

        Raises Stopping when this learner was told to stop meanwhile.
        """
        assert self.ranks is not None
        while True:
            self.ranks.join(
                lambda: (self.progress.updates, self.progress.version), self.state_as_bytes, self.take_state
            )
            try:
                self.joined()
                break
            except RanksChanged as error:
                logger.warning("%s; forming the ring once more", error)

    def joined(self) -> None:
        """Called when a ring was formed, before the next update. May raise RanksChanged."""

    def share(self) -> None:
        """Go on from the state of the rank that leads, as all do at this point. Raises RanksChanged."""
        assert self.ranks is not None
        self.ranks.share(self.state_as_bytes, self.take_state)

    def say_weights(self) -> None:
        """Of several ranks each says what it ends with."""
        if self.ranks is not None:
            logger.info("rank %d of %d ends with weights %s", self.ranks.rank, self.ranks.size, self.digest())

    def leave(self) -> None:
        """Be no rank any longer."""
        if self.ranks is not None:
            self.ranks.leave()

    # An update.

    def update(self, batch: Batch) -> dict[int, Exception]:
        """An update on what of `batch` one can be made with; what is wrong with the rest, by its place there."""
        found: dict[int, Exception] = {}
        try:
            self._update_together(batch)
        except NO_SEGMENTS:
            raise
        except Exception:
            if self.ranks is not None:
                self.ranks.abandon()  # they wait in the middle of an update
            found = faulty(batch.trajectories, self._trial)
            if not found:
                raise
            self._update_together(Batch([one for place, one in enumerate(batch.arrived) if place not in found]))
        return found

    def _update_together(self, batch: Batch) -> None:
        """An update; once more with the ranks that are left, where one is lost on the way.

        What was done of it before then stays done: minibatches that the rank which is furthest had made.
        """
        while True:
            try:
                return self._update_on(batch)
            except RanksChanged as error:
                logger.warning("the update is made once more: %s", error)
                self.join()

    def _update_on(self, batch: Batch) -> None:
        trajectories = batch.trajectories
        if self.config.deterministic:  # the same minibatches, however many actors the environments are divided among
            trajectories = [concatenate(trajectories)]
        share = self._share(batch, trajectories)
        progress = self.progress
        progress.start(share.first_step_at)
        progress.data_age, progress.staleness = share.data_age, share.staleness
        progress.version = share.version
        self.before_update()
        self.set_clock()
        try:
            update = self._checked(self._updated(trajectories))
        except (NotFinite, ConfigurationError):
            self.broken = True
            raise
        self.source.feedback(batch, update)
        self.made_of(trajectories)
        progress.add(share.episodes, share.steps, list(self.config.env.reward_channels))
        progress.losses = self._mean(update.metrics) | progress.channel_returns()
        progress.updates += 1
        progress.version = self.next_version()

    def _updated(self, trajectories: Sequence[Trajectory]) -> Update:
        """Return what the algorithm's update gives. Raises ConfigurationError for a field that it did not ask for."""
        try:
            return self.algorithm.update(trajectories)
        except KeyError as error:
            if problem := not_asked_for(error, self.algorithm_name, self.spec):
                raise ConfigurationError(problem) from error
            raise

    def _share(self, batch: Batch, trajectories: Sequence[Trajectory]) -> Share:
        """What this update is made of: of several ranks, all of theirs, once each of them has its share."""
        own = Share.of(batch.arrived, trajectories, self.progress.version)
        if self.ranks is None:
            return own
        with self.timing.stage("wait for ranks"):
            return Share.of_all(self.ranks, own, checkpoints.fingerprint(self.policy))

    def _mean(self, metrics: dict[str, float]) -> dict[str, float]:
        if self.ranks is not None:
            try:
                return self.ranks.mean(metrics)
            except RanksChanged:  # the update is made; the next one finds it out as well
                pass
        return metrics

    def _checked(self, update: Update) -> Update:
        """What an algorithm has given, if it can be gone on with."""
        name = self.algorithm_name
        if not isinstance(update, Update):
            raise ConfigurationError(
                f"algorithm {name!r}: update() gave a {type(update).__name__}; it is to give an agents.Update(metrics)"
            )
        for term, value in update.metrics.items():  # of an algorithm with an optimizer of its own
            if term.endswith(("loss", "grad_norm")) and not math.isfinite(value):
                steps = self.progress.steps
                raise NotFinite(f"{name}: {term} of the update after {steps:,} environment steps is {value}")
        return update

    def _trial(self) -> Callable[[Sequence[Trajectory]], Any]:
        policy, algorithm = self.build()
        if self.ranks is not None:
            algorithm.take_peers(ALONE)  # type: ignore[attr-defined]
        policy.load_state_dict(self.policy.state_dict())
        return algorithm.update
