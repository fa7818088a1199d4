"""A player's updates: on what has arrived, by one learner or several ranks together, without faulty segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from celery.utils.log import get_logger

from agents import Batch, Update
from agents.algorithms.contract import not_asked_for
from agents.algorithms.peers import ALONE
from agents.algorithms.together import update_together
from agents.trajectories import concatenate
from warren.errors import ConfigurationError, LeagueError, NotFinite
from workers.learning.allreduce.ranks import Stopping
from workers.learning.allreduce.ring import RanksChanged
from workers.learning.allreduce.shares import RanksDiffer, Share
from workers.learning.course import Course
from workers.learning.data_source import DataSource, UpdateData
from workers.learning.faulty_trajectories import faulty
from workers.learning.outlets import Outlets
from workers.learning.player_state import PlayerState
from workers.learning.rank_sync import RankSync

logger = get_logger(__name__)

# Errors that no single segment can have caused: the numbers in segments were checked before.
NO_SEGMENTS = (NotFinite, ConfigurationError, LeagueError, RanksDiffer, Stopping)


class Updater:
    """Makes the updates of one player's state, each together with the other ranks, if there are any."""

    def __init__(
        self, state: PlayerState, outlets: Outlets, course: Course, ranks: RankSync, source: DataSource
    ) -> None:
        self._state, self._outlets, self._course, self._ranks, self._source = state, outlets, course, ranks, source

    def update(self, data: UpdateData) -> dict[int, Exception]:
        """Make an update on `data` without the segments on which it fails; return index -> error of those.

        Raises what the algorithm raises if no single segment has caused it.
        """
        found: dict[int, Exception] = {}
        try:
            self._update_together(data)
        except NO_SEGMENTS:
            raise
        except Exception:
            if not data.arrived:  # drawn from many segments
                raise
            self._ranks.abandon()  # the others wait in the middle of an update
            found = faulty(data.batch, self._trial)
            if not found:
                raise
            self._update_together(UpdateData.of([one for index, one in enumerate(data.arrived) if index not in found]))
        return found

    def _update_together(self, data: UpdateData) -> None:
        """Make an update; if a rank is lost on the way, make it once more with the ranks that are left.

        Minibatches that the furthest rank had made by then are kept.
        """
        while True:
            try:
                return self._update_on(data)
            except RanksChanged as error:
                logger.warning("the update is made once more: %s", error)
                self._ranks.join()

    def _update_on(self, data: UpdateData) -> None:
        state, config = self._state, self._state.config
        batch = data.batch
        if config.deterministic and data.arrived:
            # So that minibatches are the same, however many actors the environments are divided among.
            batch = Batch([concatenate(batch)])
        progress = state.progress
        share = None  # of arrivals; data drawn from a replay was counted on arrival
        if data.arrived:
            own = Share.of(data.arrived, batch, progress.version, progress.training_seconds)
            share = self._ranks.total_share(own)
            progress.start(share.first_step_at)
            progress.data_age, progress.staleness = share.data_age, share.staleness
            progress.version = share.version
        else:
            progress.staleness = progress.version - float(batch[0].version.mean())
        self._course.before_update()
        state.set_clock(None if share is None else share.seconds)
        try:
            update = self._checked(self._updated(batch))
        except (NotFinite, ConfigurationError):
            state.broken = True
            raise
        state.averages.add(state.policy)
        self._source.feedback(data, update)
        self._outlets.keep_sample(batch)
        if share is not None:
            progress.add(share.episodes, share.steps, state.figures)
        progress.losses = self._ranks.mean(update.metrics) | progress.means()
        progress.updates += 1
        progress.version = self._outlets.next_version()

    def _updated(self, batch: Batch) -> Update:
        """Make the algorithm's update; return its result. Raises ConfigurationError for a field it did not ask for."""
        try:
            return update_together([self._state.algorithm], [batch])[0]
        except KeyError as error:
            if problem := not_asked_for(error, self._state.recipe.algorithm_name, self._state.spec):
                raise ConfigurationError(problem) from error
            raise

    def _checked(self, update: Update) -> Update:
        """Return `update` if training can go on from it. Raises ConfigurationError, NotFinite."""
        name = self._state.recipe.algorithm_name
        if not isinstance(update, Update):
            raise ConfigurationError(
                f"algorithm {name!r}: update() gave a {type(update).__name__}; it is to give an agents.Update(metrics)"
            )
        for term, value in update.metrics.items():
            if not isinstance(value, int | float):  # a tensor, or NumPy's float32, would not get into metrics.jsonl
                update.metrics[term] = _number(value, f"algorithm {name!r}: update() gave the metric {term}")
        for term, value in update.metrics.items():  # for an algorithm with an optimizer of its own
            if term.endswith(("loss", "grad_norm")) and not math.isfinite(value):
                steps = self._state.progress.steps
                raise NotFinite(f"{name}: {term} of the update after {steps:,} environment steps is {value}")
        return update

    def _trial(self) -> Callable[[Batch], Any]:
        """Return the update function of a copy of the learner, with these weights; its results are not used."""
        policy, algorithm = self._state.build()
        if hasattr(algorithm, "take_peers"):
            algorithm.take_peers(ALONE)
        policy.load_state_dict(self._state.policy.state_dict())
        return algorithm.update


def _number(value: Any, said: str) -> float:
    """Return a metric as a number. Raises ConfigurationError, which begins with `said`, if it is none."""
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise ConfigurationError(f"{said}={value!r}; it must be a number") from None
