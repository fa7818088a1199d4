"""What is trained: one player's policy, the algorithm that trains it, how far they are, and what they go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery.utils.log import get_logger

import envs
from agents import Algorithm, build_algorithm, build_policy, checkpoints, computing, devices
from agents.policies import Policy
from workers.config import teachers
from workers.learning.allreduce.ranks import Ranks
from workers.learning.metrics import Progress
from workers.runtime.session import PLAYER, Session

logger = get_logger(__name__)

LATE = 10.0  # times checkpoint_every: a checkpoint older than the pool's weights by so much is not gone on from


class TrainedPlayer:
    """One player's policy and algorithm, going on from the newest checkpoint in `folder`, the run folder.

    From a checkpoint come weights, optimizer and schedules of one moment. What a learner that was killed published
    after it is not taken over, but its version numbers are not used again. Where there is no checkpoint of late, the
    weights in the pool are taken, with an optimizer of their own.
    """

    player = PLAYER
    legal_actions = False  # whether each step comes with a mask of legal actions, whatever the environment

    def __init__(self, session: Session, folder: Path, ranks: Ranks | None = None) -> None:
        self.session, self.config, self.folder, self.ranks = session, session.config, folder, ranks
        self._teacher: Policy | None = None
        self.policy, self.algorithm = self.build()
        legal_actions = self.legal_actions or envs.has_masks(self.config.env.id)
        returns = len(self.config.env.reward_channels)
        self.spec = self.policy.spec(legal_actions, returns, self.algorithm.needs.fields)
        self.progress = Progress()
        self.schedules_from = 0  # steps at which the schedules began: those of the last reset
        self._saved_at = 0.0  # Unix time of the checkpoint that was gone on from
        self.first_version = self._go_on()

    def build(self) -> tuple[Policy, Algorithm]:
        """A policy with fresh weights, and what trains it."""
        env = self.config.env.settings()
        policy = build_policy(self.config.network, *envs.spaces(env), self.config.seed, env.value_channels)
        self.place(policy)
        settings = self.config.algorithm
        algorithm = build_algorithm(settings["name"], settings, policy, self.config.seed)
        self.teach(policy, algorithm, settings)
        self.pair(algorithm)
        return policy, algorithm

    def pair(self, algorithm: Algorithm) -> None:
        """Have the algorithm train together with the other ranks, where there are any."""
        if self.ranks is not None:
            algorithm.take_peers(self.ranks)  # type: ignore[attr-defined]  # the configuration was verified

    def place(self, policy: Policy) -> None:
        """Where and how the settings have it learn, before an algorithm takes its parameters."""
        policy.to(devices.resolve(self.config.device))
        policy.learn_in(computing.PRECISIONS[self.config.precision], self.config.compile)

    def teach(self, policy: Policy, algorithm: Algorithm, settings: Mapping[str, Any]) -> None:
        """Give the algorithm its teacher, if the settings name one; it is loaded once. Raises ConfigurationError."""
        name = teachers.name_of(settings)
        if name is None or not hasattr(algorithm, "take_teacher"):
            return
        if self._teacher is None:
            self._teacher = self.load_teacher(name, policy)
        if self._teacher is not None:
            algorithm.take_teacher(self._teacher, name)

    def load_teacher(self, name: str, student: Policy) -> Policy | None:
        """The teacher of that name, of which a copy is kept; None where it cannot be there yet."""
        teacher, network = teachers.load(name, student, self.folder)
        teachers.keep(teacher, network, name, self.folder)
        return teacher

    @property
    def algorithm_name(self) -> str:
        """As it is configured."""
        return str(self.config.algorithm["name"])

    def last_good(self) -> str:
        """Where training can be gone on from, as a sentence."""
        newest = checkpoints.latest(self.folder / "checkpoints")
        return "no checkpoint was written yet" if newest is None else f"the last good checkpoint is {newest}"

    def stamp(self) -> dict[str, Any]:
        """What weights are stamped with."""
        return {
            "player": self.player,
            "version": self.progress.version,
            "step": self.progress.steps,
            "schedules_from": self.schedules_from,
            "behaviour": self.algorithm.behaviour(),
        }

    def read_stamp(self, stamp: Mapping[str, Any]) -> None:
        """Read the stamp of weights from a checkpoint, the pool or another rank, before they are loaded."""
        self.schedules_from = int(stamp.get("schedules_from", 0))

    def set_clock(self) -> None:
        """Set the algorithm's schedules by the player's steps, which all its learners count together."""
        self.algorithm.begin_at(self.progress.steps - self.schedules_from)

    def _go_on(self) -> int:
        """Continue from the newest checkpoint, or from the pool; the version of those weights."""
        newest = checkpoints.latest(self.folder / "checkpoints")
        if newest is not None:
            checkpoint = checkpoints.load(newest)
            self.read_stamp(checkpoint.meta)
            checkpoints.restore(self.policy, self.algorithm, checkpoint)
            self.progress = Progress.from_meta(checkpoint.meta["progress"])
            self._saved_at = newest.stat().st_mtime
            logger.info("going on from %s: %d steps, version %d", newest, self.progress.steps, self.progress.version)
        version = self.progress.version
        return self.progress.version if self.catch_up() else version

    def catch_up(self) -> bool:
        """Search the pool for newer weights, a killed learner's or a saved league's; whether they were taken.

        Weights, the optimizer's state and the schedules are of one moment: these weights come with an optimizer that
        begins, so they are taken only where there is nothing better: no checkpoint, or one that is long past, or one
        from before the player began anew.
        """
        model = self.session.pool.newest(self.player, newer_than=self.progress.version)
        if model is None:
            return False
        tensors, stamp = checkpoints.weights_from_bytes(model.data)
        late = model.created - self._saved_at > LATE * self.config.checkpoint_every
        if late or self.is_another(stamp):
            self.read_stamp(stamp)
            self.policy, self.algorithm = self.build()
            checkpoints.load_weights(self.policy, tensors)
            self.progress.version, self.progress.steps = model.version, model.step
            self.set_clock()
            logger.info("going on from the pool: version %d at %d steps", model.version, model.step)
            return True
        logger.info(
            "the pool has version %d at %d steps, made after the checkpoint by a learner that is gone; going on from "
            "the checkpoint, %d steps, as version %d",
            model.version, model.step, self.progress.steps, model.version + 1,
        )  # fmt: skip
        self.progress.version = model.version + 1
        return False

    def is_another(self, stamp: Mapping[str, Any]) -> bool:
        """Whether weights with this stamp have replaced this player's, rather than continue them."""
        return False

    def is_of_another(self, payload: Mapping[str, Any]) -> bool:
        """Whether a segment was made with weights that this player's have replaced since, rather than continued."""
        return False

    def told(self) -> dict[str, Any]:
        """What the other ranks are told beside weights, optimizer and progress: a mapping that JSON can hold."""
        return {}

    def take_told(self, told: Mapping[str, Any]) -> None:
        """What another rank's `told` gave, before its weights are loaded."""

    def state_as_bytes(self) -> bytes:
        """Weights, optimizer and progress, for other ranks to go on from."""
        moment = self.moment()
        return checkpoints.to_bytes(replace(moment, meta={**moment.meta, "told": self.told()}))

    def take_state(self, data: bytes) -> None:
        """Go on from what another rank's `state_as_bytes` gave."""
        state = checkpoints.from_bytes(data, "the state of another rank")
        self.take_told(state.meta["told"])
        self.read_stamp(state.meta)
        checkpoints.restore(self.policy, self.algorithm, state)
        self.progress = Progress.from_meta(state.meta["progress"])

    def moment(self) -> checkpoints.Moment:
        """What a checkpoint holds, as it is now."""
        meta = {**self.stamp(), "progress": self.progress.to_meta(), **self.describe()}
        return checkpoints.Moment.of(self.policy, self.algorithm, meta)

    def describe(self) -> dict[str, Any]:
        """What a checkpoint says of what it was trained on."""
        return {"network": self.config.network, "environment": self.config.env.id}

    def digest(self) -> str:
        """Of the weights: equal for equal bits."""
        return checkpoints.digest(self.policy)
