"""The gateway of a run: an actor whose environments are games that drive themselves."""

from __future__ import annotations

import http.client
import json
import logging
from typing import Any

import envs
from agents import build_policy, devices
from envs import gamecore_actors
from warren.environment import secret
from warren.errors import ConfigurationError
from workers.config.schema import Config, GatewayConfig
from workers.gateway.limits import TOKEN, Limits
from workers.gateway.neighbours import Neighbours
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import Server, opener
from workers.gateway.sessions import Sessions
from workers.rollout import worker
from workers.rollout.answering import AnsweringRole
from workers.runtime.garbage import spare_loaded
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

PROBE = 5.0  # s for a gateway that has the port already to say whose it is


class GatewayRole(AnsweringRole):
    """Serves games, and sends what they lived through to the learner as any actor does."""

    name = "gateway"
    sampler: GatewaySampler

    def __init__(self, config: Config, session: Session, far: bool = False) -> None:
        """Raises ConfigurationError, for a port that cannot be taken say."""
        super().__init__(config, session, far)
        gateway = config.gateway
        self.limits = Limits.of(gateway)
        self._neighbours = Neighbours(session.redis, session.topology.key_prefix, self.limits.idle)
        rewards = config.env.settings().rewards()
        actor = gamecore_actors.find(config.env.id.partition(":")[2])
        self.sessions = Sessions(
            opener(actor, config.env.kwargs, self.sampler, rewards, self.limits),
            self.limits,
            secret(TOKEN),
            ready=lambda: self.sampler.ready,
            elsewhere=self._neighbours,
        )
        _check_port(gateway.address, gateway.port, config.run or "")
        self.server = Server(
            self.sessions,
            gateway.address,
            gateway.port,
            gateway.tcp_port,
            shared=gateway.port != 0,
            facts=self.facts,
            on_failure=self._failed,
        )
        self._neighbours.enter(own_address(gateway, self.server))

    def _make_sampler(self) -> GatewaySampler:
        settings = self.config.env.settings()
        seed = self._next_seed()
        policy = build_policy(self.config.network, *envs.spaces(settings), seed, settings.value_channels)
        policy.to(devices.resolve(self.config.actor_device, "actor_device"))
        return GatewaySampler(
            policy,
            self.config.unroll_length,
            self.config.env.num_envs,
            settings.rewards(),
            seed,
            self.config.max_staleness,
            self.timing,
            legal_actions=envs.has_masks(self.config.env.id),
        )

    def facts(self) -> dict[str, Any]:
        """What GET tells of this gateway."""
        return {
            "run": self.config.run,
            "gateway": self.source,
            "address": self._neighbours.address,
            "version": self.sampler.version,
            "decisions": self.sampler.decisions,
            "dropped": self.sampler.dropped,
        }

    def on_ready(self) -> None:
        spare_loaded()
        self.server.start()
        tcp = "" if self.server.tcp_port is None else f", and raw on TCP port {self.server.tcp_port}"
        logger.info("games may come to port %d%s; this gateway's own is %s", self.server.port, tcp, self.address)
        super().on_ready()

    def _failed(self, error: BaseException) -> None:
        logger.error("the server failed", exc_info=error)
        self.failure = error
        self.stop()

    @property
    def address(self) -> str:
        """The URL that leads to this gateway and to no other."""
        return self._neighbours.address

    def on_stopping(self) -> None:
        super().on_stopping()
        self.server.stop()
        self._neighbours.leave()
        self.sampler.close()


def own_address(gateway: GatewayConfig, server: Server) -> str:
    """The URL that leads to this server, among those that share its port."""
    host = gateway.public or ("127.0.0.1" if gateway.address in ("0.0.0.0", "::") else gateway.address)
    return f"http://{host}:{server.own_port}"


def _check_port(address: str, port: int, run: str) -> None:
    """Raises ConfigurationError for a port that a gateway of another run serves: the kernel would mix their games."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    connection = http.client.HTTPConnection(host, port, timeout=PROBE)
    try:
        connection.request("GET", "/")
        theirs = json.loads(connection.getresponse().read()).get("run")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return  # nobody, or somebody who does not share it
    finally:
        connection.close()
    if theirs != run:
        raise ConfigurationError(
            f"gateway.port: port {port} is served by a gateway of run {theirs}; choose another, or 0 for any"
        )


def run(config: Config) -> int:
    """As rollout's: serve until the run is over or a stop."""
    if config.league is not None:
        raise ConfigurationError("league: games of a league are stepped by its actors; a gateway trains one policy")
    return worker.run(config, GatewayRole)
