"""The gateway of a run: an actor whose environments are games that drive themselves."""

from __future__ import annotations

import http.client
import json
import logging
from typing import Any

import envs
from agents import build_policy, devices
from envs.one_agent import gamecore_actors
from warren.environment import secret
from warren.errors import ConfigurationError
from workers.config import roles
from workers.config.schema import Config, GatewayConfig
from workers.gateway.limits import TOKEN, Limits
from workers.gateway.neighbours import Neighbours
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import Server, opener
from workers.gateway.sessions import Sessions
from workers.rollout import actor as worker
from workers.rollout.served.answering import AnsweringRole
from workers.runtime.garbage import spare_loaded
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

PROBE = 5.0  # s for a gateway that has the port already to say whose it is


class GatewayRole(AnsweringRole):
    """Serves games, and sends what they lived through to the learner as any actor does."""

    role = roles.GATEWAY
    sampler: GatewaySampler

    def __init__(self, config: Config, session: Session, servers_are_remote: bool = False) -> None:
        """Open the ports. Raises ConfigurationError, for instance for a port that is taken."""
        super().__init__(config, session, servers_are_remote)
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
            own_port=own_port(gateway, session.config.actor_id or 0),
            facts=self.facts,
            on_failure=self._failed,
        )
        self._neighbours.enter(own_address(gateway, self.server))

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
            "address": self._neighbours.address,
            "version": self.sampler.version,
            "decisions": self.sampler.decisions,
            "dropped": self.sampler.dropped,
        }

    def on_ready(self) -> None:
        spare_loaded()
        self.server.start()
        if self.config.gateway.port:
            warn_of_redirects(self.config.gateway)
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
        """Begin to stop: `work` lets open sessions end first, whose games are learned from until then."""

    def stop(self) -> None:
        super().stop()
        self.server.hurry()  # the run is over: nobody learns any longer

    def work(self, name: str) -> int:
        try:
            status = super().work(name)
            self.server.stop(0.0 if self.stopping.is_set() else self.limits.drain)
            return status
        finally:
            super().on_stopping()
            self.server.stop()
            self._neighbours.leave()
            self.sampler.close()


def own_address(gateway: GatewayConfig, server: Server) -> str:
    """Return the URL that leads to this server, among those that share its port."""
    host = gateway.public or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.address, gateway.address)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.own_port}"


def own_port(gateway: GatewayConfig, place: int) -> int:
    """Return the port that the gateway `place` has to itself, 0 for any. Raises ConfigurationError."""
    port = gateway.own_port + place if gateway.own_port else 0
    if port > 65535:
        raise ConfigurationError(f"gateway.own_port: {gateway.own_port} plus {place} is not a port; choose a lower one")
    return port


def warn_of_redirects(gateway: GatewayConfig) -> None:
    """Warn where games on other machines would be sent on to themselves; for gateways that share a port."""
    if gateway.public is None and gateway.address in ("0.0.0.0", "::"):
        logger.warning(
            "gateway.public: not set, and gateway.address=%s lets games on other machines come, whom a redirect (307) "
            "would lead to themselves; set gateway.public to the name by which they reach this machine",
            gateway.address,
        )


def _check_port(address: str, port: int, run: str) -> None:
    """Raise ConfigurationError for a port that a gateway of another run serves: the kernel would mix their games."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    token = secret(TOKEN)
    connection = http.client.HTTPConnection(host, port, timeout=PROBE)
    try:
        connection.request("GET", "/", headers={} if token is None else {"token": token})
        reply = connection.getresponse()
        told = json.loads(reply.read())
        theirs = "another token" if reply.status == 401 else f"run {told.get('run')}"
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return  # nobody, or somebody who does not share it
    finally:
        connection.close()
    if theirs != f"run {run}":
        raise ConfigurationError(
            f"gateway.port: port {port} is served by a gateway of {theirs}; choose another, or 0 for any"
        )


def run(config: Config) -> int:
    """Serve until the run is over or a stop; return the exit status."""
    if config.league is not None:
        raise ConfigurationError("league: games of a league are stepped by its actors; a gateway trains one policy")
    return worker.run(config, GatewayRole)
