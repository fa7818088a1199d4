"""The actor of a plain run: plays, and sends what it lived through to the learner.

Gathered: it answers rollout tasks, one a round. Streaming: it plays on with the newest weights it has and sends a
segment whenever one is full.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from typing import Any

import torch

import envs
from agents import build_policy
from agents.checkpoints import load_weights
from tasks.client.bounded_sender import BoundedSender
from tasks.events import STATUS, WEIGHTS, Subscription
from warren.errors import WarrenError
from workers.config.schema import Config, Sampling
from workers.config.validation import verify
from workers.rollout.vector_sampler import Sampler
from workers.runtime.connect import connect
from workers.runtime.run_status import Ending
from workers.runtime.session import PLAYER, Session, log_to_stderr, source_name, stop_worker
from workers.runtime.weight_sync import NewestWeights

logger = logging.getLogger(__name__)

WEIGHTS_PATIENCE = 60.0  # s that an actor waits for weights before it says so and waits on


class ActorRole:
    """Environments, a copy of the policy, and the newest weights."""

    def __init__(self, config: Config, session: Session) -> None:
        self.config, self.session = config, session
        self.source = source_name(config.actor_id)
        # No two actors may live the same life, nor a restarted one its earlier life again: the unique name is hashed
        # with the run's seed. (A process id would not do: in containers they coincide.)
        seed = zlib.crc32(f"{config.seed}/{self.source}".encode()) % (1 << 31)
        environments = envs.make_vector(config.env.id, config.env.num_envs, seed, **config.env.kwargs)
        self.policy = build_policy(
            config.network, environments.single_observation_space, environments.single_action_space, seed
        )
        self.sampler = Sampler(environments, self.policy, seed)
        self.sampler.weight_version = -1  # whatever the learner publishes is newer
        self.weights = NewestWeights(session.pool, PLAYER)
        self.ending = Ending(session.redis, session.topology.key_prefix)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.first_step_at: float | None = None
        self.number = 0  # of the next segment
        self.streaming = config.sampling is Sampling.streaming
        self.thread = threading.Thread(target=self._stream, name="sampler", daemon=True)
        session.app.task(self.rollout, name="actor.rollout")

    def rollout(self, round_id: str, version: int) -> dict[str, Any]:
        """The rollout task: one segment made with weights of `version` or newer."""
        if not self.weights.wait_for(version, self.stopping, self.config.round_timeout):
            raise WarrenError(f"weights of version {version} did not arrive; this actor has {self.weights.version}")
        return {"round": round_id, "number": None, **self.collect()}

    def collect(self) -> dict[str, Any]:
        """Play `unroll_length` steps with the newest weights: a shipment for the learner."""
        newest = self.weights.newest(newer_than=self.sampler.weight_version)
        if newest is not None:
            version, tensors = newest
            load_weights(self.policy, tensors)
            self.sampler.weight_version = version
        self.first_step_at = self.first_step_at or time.time()
        segment = self.sampler.collect(self.config.unroll_length)
        return {
            "source": self.source,
            "first_step_at": self.first_step_at,
            "collected_at": time.time(),
            "segment": segment.to_dict(),
        }

    def on_ready(self) -> None:
        """The worker consumes."""
        if self.streaming:
            self.thread.start()

    def on_stopping(self) -> None:
        """Told to stop."""
        self.stopping.set()

    def on_connected(self) -> None:
        """Catch up with the events that went by unseen."""
        self.weights.fetch()
        if state := self.ending.verdict(self.config):
            logger.info("the run is %s already", state)
            self.stop()

    def on_status(self, figures: dict[str, Any]) -> None:
        """The run is over when its learner says so."""
        if figures["state"] in ("solved", "finished"):
            self.stop()

    def stop(self) -> None:
        """End this process, from any thread."""
        self.stopping.set()
        stop_worker()

    def _stream(self) -> None:
        try:
            queue, bound = self.session.topology.learner_queue(), self.session.topology.learner_bound
            sender = BoundedSender(self.session.app, queue, bound, self.stopping)
            while not self.weights.wait_for(0, self.stopping, WEIGHTS_PATIENCE) and not self.stopping.is_set():
                logger.warning("still waiting for the learner's first weights")
            while not self.stopping.is_set():
                shipment = {"round": None, "number": self.number, **self.collect()}
                if sender.send("learner.learn", (shipment,)):
                    self.session.ledger.confirm(self.source, self.number)
                    self.number += 1
        except BaseException as error:
            logger.exception("sampling failed")
            self.failure = error
            stop_worker()


def run(config: Config) -> int:
    """Play until the run is over or a stop; exit status 0, or 1 when playing failed."""
    verify(config, role="actor")
    log_to_stderr(config.log_level)
    torch.set_num_threads(1)
    broker_url, redis_url = connect(config)
    session = Session(config, broker_url, redis_url)
    session.declare()
    actor = ActorRole(config, session)
    subscription = Subscription(
        session.app,
        session.topology,
        {WEIGHTS: actor.weights.receive, STATUS: actor.on_status},
        subscriber=f"actor-{config.actor_id}",
        on_connected=actor.on_connected,
    ).start()
    status = session.work(f"actor-{config.actor_id}", session.topology.actor_queue(), actor.on_ready, actor.on_stopping)
    actor.stopping.set()
    if actor.thread.is_alive():
        actor.thread.join(timeout=5.0)
    subscription.stop()
    return 1 if actor.failure is not None else status
