"""The state of one player in training: policy, algorithm, progress, and their way into checkpoints and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from celery.utils.log import get_logger

from agents import Algorithm, build_algorithm, checkpoints, computing, devices
from agents.checkpoints import Checkpoint, Moment
from agents.policies import Policy
from agents.weight_averages import WeightAverages
from league.models.pool import Pool
from workers.config import teachers
from workers.config.schema import Config
from workers.learning.allreduce.ranks import Ranks
from workers.learning.course import Recipe
from workers.learning.metrics import Progress

logger = get_logger(__name__)

LATE = 10.0  # times checkpoint_every: a checkpoint that is older than the pool's weights by more is not used


class Surroundings(Protocol):
    """The part of a Session that making a player needs."""

    @property
    def config(self) -> Config:
        """Return the settings of the run."""
        ...

    @property
    def pool(self) -> Pool | None:
        """Return the pool of models; None without servers."""
        ...


class PlayerState:
    """One player's policy, algorithm and progress, restored from the newest checkpoint in its folder.

    A checkpoint has weights, optimizer and schedules of one moment. Weights that a killed learner published after it
    are not taken over, but their version numbers are not used again. If there is no recent checkpoint, the weights in
    the pool are taken, with a new optimizer.

    `broken`: an update ended halfway; these weights are neither published nor kept.
    """

    def __init__(self, surroundings: Surroundings, recipe: Recipe, ranks: Ranks | None = None) -> None:
        self.config, self._pool = surroundings.config, surroundings.pool
        self.recipe, self._ranks = recipe, ranks
        self.generation = 0  # number of resets, if the player may be reset
        self.broken = False
        self._teacher: Policy | None = None
        self.rebuild()
        self.progress = Progress(self.config.env.goal_episodes)
        self.schedules_from = 0  # steps at which the schedules began: those of the last reset
        self._saved_at = 0.0  # Unix time of the checkpoint that was restored
        self.first_version = self._restore_newest()

    @property
    def leads(self) -> bool:
        """True if this learner publishes, and writes metrics and checkpoints."""
        return self._ranks is None or self._ranks.leads

    # Making the player.

    def build(self) -> tuple[Policy, Algorithm]:
        """Return a policy with fresh weights, and the algorithm that trains it."""
        policy = self.recipe.new_policy(self.generation)
        policy.to(devices.resolve(self.config.device))
        policy.set_learning_precision(computing.PRECISIONS[self.config.precision], self.config.compile)
        seed, settings = self.recipe.order_seed(self.generation), self.recipe.algorithm_settings
        algorithm = build_algorithm(self.recipe.algorithm_name, settings, policy, seed)
        self._teach(policy, algorithm)
        if self._ranks is not None:
            algorithm.take_peers(self._ranks)  # type: ignore[attr-defined]  # the configuration was verified
        return policy, algorithm

    def rebuild(self) -> None:
        """Begin with fresh weights, a new optimizer and new averages."""
        self.policy, self.algorithm = self.build()
        self.averages = WeightAverages(self.recipe.averages)  # averages of the policy's weights
        self.figures = self.config.env.settings().figures
        self.spec = self.policy.spec(self.recipe.legal_actions, len(self.figures), self.algorithm.needs.fields)

    def teach(self) -> None:
        """Give the algorithm its teacher, if the settings name one. Raises ConfigurationError."""
        self._teach(self.policy, self.algorithm)

    def _teach(self, policy: Policy, algorithm: Algorithm) -> None:
        name = teachers.name_of(self.recipe.algorithm_settings)
        if name is None or not hasattr(algorithm, "take_teacher"):
            return
        if self._teacher is None:
            self._teacher = self.recipe.load_teacher(name, policy)
        if self._teacher is not None:
            algorithm.take_teacher(self._teacher, name)

    # Stamps.

    def stamp(self) -> dict[str, Any]:
        """Return the facts that go with the weights, in the pool and in checkpoints."""
        stamp = {
            "player": self.recipe.player,
            "version": self.progress.version,
            "step": self.progress.steps,
            "schedules_from": self.schedules_from,
            "behaviour": self.algorithm.behaviour(),
            "network": self.recipe.describe()["network"],
        }
        return {**stamp, "generation": self.generation} if self.recipe.has_generations else stamp

    def read_stamp(self, stamp: Mapping[str, Any]) -> None:
        """Take over the stamp of weights that are about to be loaded; those of another generation get a new optimizer.

        The weights come from a checkpoint, the pool or another rank.
        """
        self.schedules_from = int(stamp.get("schedules_from", 0))
        if self.recipe.take_network(stamp) or self._replaces(stamp):
            self.generation = int(stamp.get("generation", 0))
            self.rebuild()

    def is_stale_generation(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a reset has since replaced the weights that made a segment, rather than an update."""
        return self.recipe.has_generations and payload.get("generation") != self.generation

    def _replaces(self, stamp: Mapping[str, Any]) -> bool:
        """Return whether weights with this stamp replace the player's, rather than continue them."""
        return self.recipe.has_generations and int(stamp.get("generation", 0)) != self.generation

    def set_clock(self, seconds: float | None = None) -> None:
        """Set the algorithm's schedules by the player's steps, of all its learners together, and by the run's progress.

        `seconds`: of training, on which its learners have agreed; None: this learner's.
        """
        algorithm = self.algorithm
        algorithm.begin_at(self.progress.steps - self.schedules_from)
        if hasattr(algorithm, "take_progress"):
            algorithm.take_progress(self.part_of_run(seconds))

    @property
    def steps_of_run(self) -> float | None:
        """Return the steps that the player makes in the whole run at its mean pace so far; None before its first."""
        part = self.part_of_run()
        return self.progress.steps / part if part > 0.0 else None

    def part_of_run(self, seconds: float | None = None) -> float:
        """Return the part of the run, in [0, 1], that is over; `seconds`: of training; None: this learner's."""
        seconds = self.progress.training_seconds if seconds is None else seconds
        return self.config.progress(self.progress.steps / self.recipe.share, seconds)

    # Checkpoints.

    def moment(self, **more: Any) -> Moment:
        """Return a copy of all that a checkpoint holds; `more` is added to its metadata."""
        meta = {**self.stamp(), "progress": self.progress.to_meta(), **self.recipe.describe(), **more}
        meta["averaged_updates"] = self.averages.updates
        return Moment.of(self.policy, self.algorithm, meta, self.averages.state())

    def restore(self, moment: Checkpoint) -> None:
        """Take over weights, optimizer, schedules and progress of a checkpoint or of another rank."""
        self.read_stamp(moment.meta)
        checkpoints.restore(self.policy, self.algorithm, moment)
        self.averages.load_state(moment.averages, int(moment.meta.get("averaged_updates", 0)), self.policy)
        self.progress = Progress.from_meta(moment.meta["progress"], self.config.env.goal_episodes)

    def last_good(self) -> str:
        """Return a sentence that names the checkpoint from which training can be resumed."""
        newest = self._newest()
        return "no checkpoint was written yet" if newest is None else f"the last good checkpoint is {newest}"

    def digest(self) -> str:
        """Return a digest of the weights: equal for equal bits."""
        return checkpoints.digest(self.policy)

    def _newest(self) -> Path | None:
        return checkpoints.latest(self.recipe.folder / "checkpoints")

    def _restore_newest(self) -> int:
        """Restore the newest checkpoint or the pool's weights; return the version of what was taken."""
        newest = self._newest()
        if newest is not None:
            self.restore(checkpoints.load(newest))
            self._saved_at = newest.stat().st_mtime
            logger.info("resumed from %s: %d steps, version %d", newest, self.progress.steps, self.progress.version)
        version = self.progress.version
        return self.progress.version if self.catch_up() else version

    def catch_up(self) -> bool:
        """Take newer weights from the pool if they are better than the present ones; return whether they were taken.

        They are a killed learner's or a saved league's. A checkpoint has weights, optimizer and schedules of one
        moment, but these weights come with a new optimizer. So they are taken only if there is no checkpoint, or it is
        much older, or it is from before a reset of the player.
        """
        pool = self._pool
        model = None if pool is None else pool.newest(self.recipe.player, newer_than=self.progress.version)
        if model is None:
            return False
        tensors, stamp = checkpoints.weights_from_bytes(model.data)
        late = model.created - self._saved_at > LATE * self.config.checkpoint_every
        if late or self._replaces(stamp):
            self.read_stamp(stamp)
            self.rebuild()
            checkpoints.load_weights(self.policy, tensors)
            self.progress.version, self.progress.steps = model.version, model.step
            self.set_clock()
            logger.info("resumed from the pool's weights: version %d at %d steps", model.version, model.step)
            return True
        logger.info(
            "the pool has version %d at %d steps, published after the checkpoint by a learner that was killed; resumed "
            "from the checkpoint, %d steps, as version %d",
            model.version, model.step, self.progress.steps, model.version + 1,
        )  # fmt: skip
        self.progress.version = model.version + 1
        return False
