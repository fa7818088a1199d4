"""Checks of a gateway's settings, for training and for a trained policy that is deployed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from warren.user_code import install
from workers.config import roles
from workers.config.schema import Config, GatewayConfig, Sampling

COUNTS = ("max_sessions", "max_agents", "max_connections", "max_body")
SPANS = ("idle", "receive", "answer")
PORTS = ("port", "tcp_port", "own_port")


def wrong_values(gateway: GatewayConfig) -> Iterator[str]:
    """Yield a sentence for each setting whose value no gateway accepts."""
    for name in COUNTS:
        if getattr(gateway, name) < 1:
            yield f"gateway.{name}: {getattr(gateway, name)} is too small; it must be at least 1"
    for name in SPANS:
        if not getattr(gateway, name) > 0:
            yield f"gateway.{name}: {getattr(gateway, name)} is not a time span; it must be more than 0 seconds"
    if gateway.max_rate is not None and not gateway.max_rate > 0:
        yield f"gateway.max_rate: {gateway.max_rate} is not a rate; it must be more than 0 requests a second, or null"
    if not gateway.drain >= 0:
        yield f"gateway.drain: {gateway.drain} is not a time span; it must be 0 seconds or more"
    for name in PORTS:
        if (port := getattr(gateway, name)) is not None and not 0 <= port < 65536:
            yield f"gateway.{name}: {port} is not a port; it must be from 1 to 65535, or 0 for any that is free"


def wrong_sampling(config: Config) -> Iterator[str]:
    """Yield a sentence if `sampling` is not streaming, which gateways need."""
    if config.sampling is not Sampling.streaming:
        setting, game = roles.game_of(config)
        yield (
            f"sampling: {config.sampling.value} asks actors to play, and {setting}={game} drives itself; use "
            "sampling=streaming"
        )


def missing_packages() -> Iterator[str]:
    """Yield a sentence for each package that gateways need and that is not installed."""
    if importlib.util.find_spec("uvicorn") is None:
        yield f"gateway: uvicorn, which serves the games, is not installed; {install('uvicorn')}"
