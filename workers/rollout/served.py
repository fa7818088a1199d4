"""The actor of a served run: answers env runners, which step the environments, and sends what came of it.

Its services: `actor.join`, by which an env runner finds an actor, whichever is free; and `actor-N.act`, this one's own,
since a trajectory is built where its decisions are made.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence

import envs
from agents import build_policy, devices
from tasks.service import Worker, service
from tasks.worker.server import Serving
from workers.config.schema import Config
from workers.rollout import worker
from workers.rollout.answering import AnsweringRole
from workers.rollout.served_sampler import Answer, Call, ServedSampler
from workers.runtime.lease import Lease
from workers.runtime.session import event_rate

logger = logging.getLogger(__name__)

AT_ONCE = 64  # calls in a forward pass at most
SWITCH = 0.0005  # s for which a thread may compute before another gets its turn: env runners wait for one of them


class Joining(Worker):
    """What all actors of the run offer under one name."""

    role = "actor"

    def __init__(self, actor: ServedRole) -> None:
        super().__init__()
        self._actor = actor

    @service
    def join(self, group: str) -> str:
        """The service that `group` is to ask from now on."""
        sampler = self._actor.sampler
        if gone := sampler.forget_idle():
            logger.info("%d groups of env runners that have gone are forgotten", gone)
        logger.info("group %s comes; there are %d others", group, sampler.groups)
        return self._actor.own_service


class Acting(Worker):
    """What one actor offers; its role is the actor's name."""

    def __init__(self, actor: ServedRole) -> None:
        super().__init__()
        self._actor = actor

    @service(batch=AT_ONCE)
    def act(self, calls: Sequence[Call]) -> list[Answer | Exception]:
        """See ServedSampler.act."""
        return self._actor.sampler.act(calls)


class ServedRole(AnsweringRole):
    """Decides for the groups of env runners, and sends trajectories to the learner as any actor does."""

    sampler: ServedSampler

    @property
    def own_name(self) -> str:
        """Of this actor, in the run."""
        return f"actor-{self.config.actor_id}"

    @property
    def own_service(self) -> str:
        """What its groups ask."""
        return f"{self.own_name}.act"

    def _make_sampler(self) -> ServedSampler:
        config, settings, seed = self.config, self.config.env.settings(), self._next_seed()
        policy = build_policy(config.network, *envs.spaces(settings), seed, settings.value_channels)
        policy.to(devices.resolve(config.actor_device, "actor_device"))
        return ServedSampler(
            policy,
            config.unroll_length,
            config.env.num_envs,
            seed,
            returns=len(settings.reward_channels),
            travelling=config.served_memory == "travelling",
            timing=self.timing,
        )

    def work(self, name: str) -> int:
        """Serve until told to stop."""
        sys.setswitchinterval(SWITCH)
        session, ended = self.session, threading.Event()
        lease = Lease(session.redis, session.topology.key_prefix, f"actor {self.config.actor_id}")
        lease.take(self.stopping, "give each actor an actor_id of its own")
        lease.hold(ended, self._superseded)
        own = type("Acting", (Acting,), {"role": self.own_name})(self)
        try:
            serving = Serving(
                session.app,
                session.topology,
                [Joining(self), own],
                name,
                event_rate=event_rate(self.config),
                log_level=self.config.log_level,
            )
            return serving.run(self.on_ready, self.on_stopping)
        finally:
            ended.set()
            lease.release()

    def _superseded(self, by: str) -> None:
        logger.error("%s", by)
        self.failure = RuntimeError(by)
        self.stop()

    def on_stopping(self) -> None:
        super().on_stopping()
        self.sampler.close()

    def stop(self) -> None:
        self.sampler.close()  # whom it holds up is told
        super().stop()


def run(config: Config) -> int:
    """As rollout's: serve until the run is over or a stop."""
    return worker.run(config, ServedRole)
