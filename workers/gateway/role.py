"""The gateway of a run: an actor whose environments are games that drive themselves."""

from __future__ import annotations

from typing import Any

import envs
from agents import build_policy, devices
from envs.one_agent import gamecore_actors
from workers.config import roles
from workers.config.schema import Config
from workers.gateway.front import Front
from workers.gateway.fronted import Fronted
from workers.gateway.limits import Limits
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import opener
from workers.rollout import actor as worker
from workers.rollout.served.answering import AnsweringRole
from workers.runtime.session import Session


class GatewayRole(Fronted, AnsweringRole):
    """Serves games, and sends their trajectories to the learner as any actor does."""

    role = roles.GATEWAY
    sampler: GatewaySampler

    def __init__(self, config: Config, session: Session, servers_are_remote: bool = False) -> None:
        """Open the ports. Raises ConfigurationError, for instance for a port that is taken."""
        super().__init__(config, session, servers_are_remote)
        rewards, actor = config.env.settings().rewards(), gamecore_actors.find(config.env.id.partition(":")[2])
        self.front = Front(
            session,
            opener(actor, config.env.kwargs, self.sampler, rewards, Limits.of(config.gateway)),
            lambda: self.sampler.ready,
            self.facts,
            self._failed,
        )

    def _make_sampler(self) -> GatewaySampler:
        settings = self.config.env.settings()
        seed = self._next_seed()
        policy = build_policy(self.config.network, *envs.spaces(settings), seed, settings.value_channels)
        policy.to(devices.resolve(self.config.actor_device, "actor_device"))
        policy.place = self.number, self.config.actors
        return GatewaySampler(
            policy,
            self.config.unroll_length,
            self.config.env.num_envs,
            settings.rewards(),
            seed,
            self.config.max_staleness,
            self.timing,
            legal_actions=envs.has_masks(self.config.env.id),
            fields=self._asked(policy),
        )

    def facts(self) -> dict[str, Any]:
        """Return the answer to GET: this gateway's state."""
        return {
            "run": self.config.run,
            "gateway": self.source,
            "address": self.front.address,
            "version": self.sampler.version,
            "decisions": self.sampler.decisions,
            "dropped": self.sampler.dropped,
        }

    def work(self, name: str) -> int:
        try:
            return super().work(name)
        finally:
            self.sampler.close()


def run(config: Config) -> int:
    """Serve until the run is over or a stop; return the exit status."""
    return worker.run(config, GatewayRole)
