"""Training one player: segments in, an update, new weights out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from celery.utils.log import get_logger

import envs
from agents import Algorithm, build_algorithm, build_policy, checkpoints
from agents.policies import Policy
from agents.segments import Segment
from tasks.events import STATUS, WEIGHTS
from warren.errors import BrokerError, WireError
from workers.learning import curve
from workers.learning.metrics import MetricsLog, Progress
from workers.runtime.run_status import verdict
from workers.runtime.session import PLAYER, Session

logger = get_logger(__name__)

Shipped = tuple[dict[str, Any], Segment]  # a shipment as an actor sent it, and the segment in it

STATUS_EVERY = 0.25  # s between status events


class Trainer:
    """The learner's half that knows nothing of queues: `learn` is the body of the learn task.

    `folder` is the run folder. Goes on from its newest checkpoint where there is one, and from newer weights in the
    pool (published after that checkpoint by a learner that died) where there are any.
    """

    player = PLAYER
    weights_event, status_event = WEIGHTS, STATUS

    def __init__(self, session: Session, folder: Path, on_finished: Callable[[], None]) -> None:
        self.session, self.config, self.folder = session, session.config, folder
        self._on_finished = on_finished
        self.outcome: dict[str, Any] | None = None
        self.policy, self.algorithm = self.build()
        self.progress = Progress()
        self.log = MetricsLog(folder)
        self._checkpoint_at = time.monotonic() + self.config.checkpoint_every
        self._status_at = 0.0
        self._published: tuple[int, int, bytes] | None = None  # version, step, safetensors bytes
        self._go_on()

    def build(self) -> tuple[Policy, Algorithm]:
        """A policy with fresh weights, and what trains it."""
        observation_space, action_space = envs.spaces(self.config.env.id, **self.config.env.kwargs)
        policy = build_policy(self.config.network, observation_space, action_space, self.config.seed)
        settings = self.config.algorithm
        return policy, build_algorithm(settings["name"], settings, policy, self.config.seed)

    def stamp(self) -> dict[str, Any]:
        """What weights are stamped with."""
        return {"player": self.player, "version": self.progress.version, "step": self.progress.steps}

    def read_stamp(self, stamp: Mapping[str, Any]) -> None:
        """The stamp of weights that are gone on from and were not in this process before, ahead of loading them."""

    def before_update(self) -> None:
        """Called before each update."""

    def after_update(self) -> None:
        """Called after each update, before its weights are published."""

    def verdict(self) -> str | None:
        """How the run ended, None while there is more to do."""
        return verdict(self.config, self.progress.steps, self.progress.mean_return)

    def _go_on(self) -> None:
        newest = checkpoints.latest(self.folder / "checkpoints")
        if newest is not None:
            checkpoint = checkpoints.load(newest)
            self.read_stamp(checkpoint.meta)
            checkpoints.restore(self.policy, self.algorithm, checkpoint)
            self.progress = Progress.from_meta(checkpoint.meta["progress"])
            logger.info("going on from %s: %d steps, version %d", newest, self.progress.steps, self.progress.version)
        self.catch_up()

    def catch_up(self) -> None:
        """Take over weights of the pool that are newer than these: another learner's, or those of a saved league."""
        model = self.session.pool.newest(self.player, newer_than=self.progress.version)
        if model is not None:
            tensors, stamp = checkpoints.weights_from_bytes(model.data)
            self.read_stamp(stamp)
            checkpoints.load_weights(self.policy, tensors)
            self.progress.version, self.progress.steps = model.version, model.step
            logger.info("the pool has newer weights: version %d at %d steps", model.version, model.step)

    def publish(self) -> None:
        """Put the weights into the pool and fire them to every actor; an actor whose event is lost looks there."""
        stamp = self.stamp()
        data = checkpoints.weights_to_bytes(self.policy, stamp)
        self._published = (self.progress.version, self.progress.steps, data)
        self.session.pool.put(self.player, *self._published)
        self._fire(self.weights_event, {**stamp, "data": data})

    def restore_published(self) -> None:
        """Publish the newest weights once more if the pool has lost them (a Redis that restarted empty).

        From any thread: what is sent are the bytes of the last `publish`, not the policy that is being trained.
        Raises redis.RedisError.
        """
        if self._published is None:
            return
        version, step, data = self._published
        known = self.session.pool.version(self.player)
        if known is None or known < version:
            logger.warning("the pool has lost the weights; publishing version %d again", version)
            self.session.pool.put(self.player, version, step, data)
            self._fire(self.weights_event, {"player": self.player, "version": version, "step": step, "data": data})

    def learn(self, calls: Sequence[Any]) -> list[Any]:
        """One update on the shipments of `calls` (see sampling.py); each call gives one shipment or a list of them.

        Returns None for each call, or the error of a call whose shipment is damaged: that one fails alone.
        """
        outcomes: list[Any] = [None] * len(calls)
        fresh: list[Shipped] = []
        stale: list[Shipped] = []
        for index, call in enumerate(calls):
            try:
                for shipment in call if isinstance(call, list) else [call]:
                    segment = Segment.from_dict(shipment["segment"])
                    behind = self.progress.version - segment.weight_version
                    (fresh if behind <= self.config.max_staleness else stale).append((shipment, segment))
            except (WireError, KeyError, TypeError) as error:
                logger.error("a damaged shipment was refused: %s", error)
                outcomes[index] = error
        if fresh and self.outcome is None:
            self._update(fresh)
        self.progress.stale_steps += sum(segment.num_steps for _, segment in stale)
        self.session.ledger.settle(_numbers(fresh), _numbers(stale))
        return outcomes

    def _update(self, fresh: Sequence[Shipped]) -> None:
        progress, now = self.progress, time.time()
        progress.start(min(shipment["first_step_at"] for shipment, _ in fresh))
        progress.data_age = sum(now - shipment["collected_at"] for shipment, _ in fresh) / len(fresh)
        progress.staleness = sum(progress.version - s.weight_version for _, s in fresh) / len(fresh)
        self.before_update()
        progress.losses = self.algorithm.update([segment for _, segment in fresh])
        segments = [segment for _, segment in fresh]
        progress.add(np.concatenate([s.episodes for s in segments]), sum(s.num_steps for s in segments))
        progress.updates += 1
        progress.version += 1
        self.after_update()
        self.publish()
        self.log.write(progress.figures(), progress.losses)
        if state := self.verdict():
            self.finish(state)
        elif time.monotonic() >= self._checkpoint_at:
            self.checkpoint()
        self.fire_status()

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
        checkpoints.save(
            self.folder / "checkpoints",
            f"{self.progress.version:08d}",
            self.policy,
            self.algorithm,
            {**self.stamp(), "progress": self.progress.to_meta(), **self.describe()},
            keep=self.config.checkpoints_kept,
        )
        self._checkpoint_at = time.monotonic() + self.config.checkpoint_every

    def describe(self) -> dict[str, Any]:
        """What a checkpoint says of what it was trained on."""
        return {"network": self.config.network, "environment": self.config.env.id}

    def fire_status(self, state: str = "training", always: bool = False) -> None:
        """Tell whoever watches how far it is, a few times a second at most."""
        now = time.monotonic()
        if always or now >= self._status_at:
            self._status_at = now + STATUS_EVERY
            figures = {"state": state, **self.progress.figures(), "losses": self.progress.losses}
            self._fire(self.status_event, figures)

    def _fire(self, name: str, payload: Any) -> None:
        # Without a broker an update is still an update, and what it learned from is used.
        try:
            self.session.events.fire(name, payload)
        except BrokerError as error:
            logger.warning("%s", error)

    def close(self) -> None:
        """Write the newest checkpoint, the outcome, the learning curve; tell everyone that it is over."""
        self.checkpoint()
        self.log.close()
        outcome = self.outcome or {"state": "stopped", "steps": self.progress.steps}
        (self.folder / "outcome.json").write_text(json.dumps(outcome, indent=1) + "\n")
        curve.draw(self.folder, f"{self.config.env.id}, {self.config.sampling.value}", self.config.env.goal)
        self.fire_status(outcome["state"], always=True)


def _numbers(shipments: Sequence[Shipped]) -> list[tuple[str, int]]:
    return [(s["source"], s["number"]) for s, _ in shipments if s["number"] is not None]
