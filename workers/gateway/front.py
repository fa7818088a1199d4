"""The front of a run's gateway: its ports, the sessions behind them, and its place among the run's other gateways."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable
from typing import Any

from warren.environment import secret
from warren.errors import ConfigurationError
from workers.config.schema import GatewayConfig
from workers.gateway.limits import TOKEN, Limits
from workers.gateway.neighbours import Neighbours
from workers.gateway.server import Server
from workers.gateway.sessions import WAIT_FOR_WEIGHTS, Open, Sessions
from workers.runtime.garbage import spare_loaded
from workers.runtime.session import Session

logger = logging.getLogger(__name__)

PROBE = 5.0  # s within which a gateway that has the port already has to name its run


class Front:
    """Accepts games from `start` to `close`; `stop` lets open ones end first."""

    def __init__(
        self,
        session: Session,
        open_game: Open,
        ready: Callable[[], bool],
        facts: Callable[[], dict[str, Any]],
        on_failure: Callable[[BaseException], None],
        wait: str = WAIT_FOR_WEIGHTS,
    ) -> None:
        """Open the ports. `facts`: the answer to GET; the rest as Sessions and Server have them.

        Raises ConfigurationError, for instance for a port that is taken.
        """
        self._gateway = gateway = session.config.gateway
        limits = Limits.of(gateway)
        self._neighbours = Neighbours(session.redis, session.topology.key_prefix, limits.idle)
        self.sessions = Sessions(open_game, limits, secret(TOKEN), ready=ready, elsewhere=self._neighbours, wait=wait)
        _check_port(gateway.address, gateway.port, session.config.run or "")
        self.server = Server(
            self.sessions,
            gateway.address,
            gateway.port,
            gateway.tcp_port,
            shared=gateway.port != 0,
            own_port=own_port(gateway, session.config.actor_id or 0),
            facts=facts,
            on_failure=on_failure,
        )
        self._neighbours.enter(own_address(gateway, self.server))

    @property
    def address(self) -> str:
        """The URL that leads to this gateway and to no other."""
        return self._neighbours.address

    def start(self) -> None:
        """Accept games from now on."""
        spare_loaded()
        self.server.start()
        if self._gateway.port:
            warn_of_redirects(self._gateway)
        tcp = "" if self.server.tcp_port is None else f", and raw on TCP port {self.server.tcp_port}"
        logger.info("games may come to port %d%s; this gateway's own is %s", self.server.port, tcp, self.address)

    def stop(self, at_once: bool = False) -> None:
        """Open no more sessions; open ones end within `gateway.drain` s, or `at_once`."""
        self.server.stop(0.0 if at_once else self._gateway.drain)

    def hurry(self) -> None:
        """Stop waiting for open sessions; may be called from any thread or a signal's handler."""
        self.server.hurry()

    def close(self) -> None:
        """Close the ports and all sessions, and leave the other gateways."""
        self.server.stop()
        self._neighbours.leave()


def own_address(gateway: GatewayConfig, server: Server) -> str:
    """Return the URL that leads to this server, among those that share its port."""
    host = gateway.public or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(gateway.address, gateway.address)
    return f"http://{f'[{host}]' if ':' in host else host}:{server.own_port}"


def own_port(gateway: GatewayConfig, place: int) -> int:
    """Return the port that gateway number `place` has to itself, 0 for any. Raises ConfigurationError."""
    port = gateway.own_port + place if gateway.own_port else 0
    if port > 65535:
        raise ConfigurationError(f"gateway.own_port: {gateway.own_port} plus {place} is not a port; choose a lower one")
    return port


def warn_of_redirects(gateway: GatewayConfig) -> None:
    """Warn if redirects would send games on other machines to themselves; for gateways that share a port."""
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
        return  # nothing listens, or a program that does not share the port
    finally:
        connection.close()
    if theirs != f"run {run}":
        raise ConfigurationError(
            f"gateway.port: port {port} is served by a gateway of {theirs}; choose another, or 0 for any"
        )
