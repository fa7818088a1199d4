"""The actor of a served run: answers env runners, which step the environments, and sends the trajectories.

It serves `actor.join`, by which an env runner finds any free actor, and `actor-N.act`, its own service, since a
trajectory is built where its decisions are made.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import envs
from agents import build_policy, devices
from tasks.service import Worker, service
from tasks.worker.server import Serving
from workers.config.schema import Config
from workers.rollout import actor as worker
from workers.rollout.sampler import SamplerClosed
from workers.rollout.served.answering import AnsweringRole
from workers.rollout.served.group_calls import Answer, Call
from workers.rollout.served.sampler import ServedSampler
from workers.runtime.session import Session, event_rate

logger = logging.getLogger(__name__)

AT_ONCE = 64  # calls in a forward pass at most
ACT = "act"
SWITCH = 0.0005  # s for which a thread may compute before another gets its turn, as env runners wait for one of them


class Decider(Protocol):
    """Decides for groups of env runners, as ServedSampler does."""

    @property
    def groups(self) -> int:
        """Number of known groups."""
        ...

    def forget_idle(self) -> int:
        """Drop the groups that have gone; return how many there were."""
        ...

    def act(self, calls: Sequence[Call]) -> list[Answer | Exception]:
        """Return an answer per call, or the error in its place. Raises SamplerClosed."""
        ...


class JoinService(Worker):
    """Service that all actors of the run offer under one name."""

    role = "actor"

    def __init__(self, decider: Callable[[], Decider], own_service: str) -> None:
        super().__init__()
        self._decider, self._own_service = decider, own_service

    @service
    def join(self, group: str) -> str:
        """Return the service that `group` is to ask from now on."""
        decider = self._decider()
        if gone := decider.forget_idle():
            logger.info("%d groups of env runners that have gone are forgotten", gone)
        logger.info("group %s comes; there are %d others", group, decider.groups)
        return self._own_service


class ActService(Worker):
    """Service of one actor; its role is the actor's name."""

    def __init__(self, decider: Callable[[], Decider]) -> None:
        super().__init__()
        self._decider = decider

    @service(batch=AT_ONCE)
    def act(self, calls: Sequence[Call]) -> Sequence[Answer | Exception | None]:
        """See Decider.act. Return None for each call if this actor is ending: the group is to ask another one."""
        try:
            return self._decider().act(calls)
        except SamplerClosed:
            return [None] * len(calls)


class ServedRole(AnsweringRole):
    """Decides for the groups of env runners, and sends trajectories to the learner as any actor does."""

    sampler: ServedSampler

    def _make_sampler(self) -> ServedSampler:
        config, settings, seed = self.config, self.config.env.settings(), self._next_seed()
        observed, actions, masked = envs.describe(settings)
        policy = build_policy(config.network, observed, actions, seed, settings.value_channels)
        policy.to(devices.resolve(config.actor_device, "actor_device"))
        policy.place = self.number, config.actors
        return ServedSampler(
            policy,
            config.unroll_length,
            config.env.num_envs,
            seed,
            returns=len(settings.figures),
            travelling=config.served_memory == "travelling",
            timing=self.timing,
            fields=self._asked(policy),
            legal_actions=masked,
        )

    def work(self, name: str) -> int:
        """Serve until told to stop."""
        return serve(self.session, self, lambda: self.sampler, name)

    def on_stopping(self) -> None:
        super().on_stopping()
        self.sampler.close()

    def stop(self) -> None:
        self.sampler.close()  # ends the waits of its callers
        super().stop()


class Role(Protocol):
    """The part of an actor that `serve` uses."""

    def on_ready(self) -> None:
        """Do what is due once it serves."""

    def on_stopping(self) -> None:
        """Stop what is under way."""


def service_of(actor_id: int) -> str:
    """Return the name of the service that the groups of this actor ask."""
    return f"actor-{actor_id}.{ACT}"


def serve(session: Session, role: Role, decider: Callable[[], Decider], name: str) -> int:
    """Answer env runners until told to stop; return the exit status."""
    sys.setswitchinterval(SWITCH)
    config, own_service = session.config, f"{name}.{ACT}"
    own = type("ActService", (ActService,), {"role": own_service.partition(".")[0]})(decider)
    serving = Serving(
        session.app,
        session.topology,
        [JoinService(decider, own_service), own],
        name,
        event_rate=event_rate(config),
        log_level=config.log_level,
    )
    return serving.run(role.on_ready, role.on_stopping)


def run(config: Config) -> int:
    """Serve until the run is over or a stop; return the exit status."""
    return worker.run(config, ServedRole)
