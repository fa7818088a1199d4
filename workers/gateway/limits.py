"""What a gateway allows games."""

from __future__ import annotations

from dataclasses import dataclass

TOKEN = "WARREN_GATEWAY_TOKEN"  # the environment variable that holds what games have to show


@dataclass(frozen=True)
class Limits:
    """Defaults are those of `gateway` in workers/config/schema.py, where each setting is explained."""

    sessions: int = 10_000
    body: int = 1 << 20  # bytes
    idle: float = 60.0  # s
    receive: float = 10.0  # s
    answer: float = 60.0  # s
