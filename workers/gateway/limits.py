"""The bounds of what a gateway allows games."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from workers.config.schema import GatewayConfig

TOKEN = "WARREN_GATEWAY_TOKEN"  # the environment variable with the token that games have to show


@dataclass(frozen=True)
class Limits:
    """A gateway's limits, each of which GatewayConfig explains."""

    sessions: int = GatewayConfig.max_sessions
    agents: int = GatewayConfig.max_agents
    connections: int = GatewayConfig.max_connections
    body: int = GatewayConfig.max_body
    rate: float | None = GatewayConfig.max_rate
    idle: float = GatewayConfig.idle
    receive: float = GatewayConfig.receive
    answer: float = GatewayConfig.answer
    drain: float = GatewayConfig.drain

    @classmethod
    def of(cls, gateway: GatewayConfig) -> Self:
        """Return the limits in the settings."""
        return cls(
            gateway.max_sessions,
            gateway.max_agents,
            gateway.max_connections,
            gateway.max_body,
            gateway.max_rate,
            gateway.idle,
            gateway.receive,
            gateway.answer,
            gateway.drain,
        )
