"""The differences between the clocks of a run's hosts, each of which reports its difference to Redis's clock."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import redis

from tasks.topology import key_prefix
from workers.doctor.findings import Finding, Level
from workers.doctor.redis_server import SKEW_HARMS, SKEW_SEEN

DAY = 24 * 3600  # s for which a report is kept


def report(client: Any, run: str, skew: float, host: str | None = None) -> None:
    """Store that Redis's clock is `skew` s ahead of this host's."""
    key = f"{key_prefix(run)}clocks"
    client.hset(key, host or socket.gethostname(), skew)
    client.expire(key, DAY)


def read(client: redis.Redis, run: str) -> dict[str, float]:
    """Return host -> seconds by which Redis's clock was ahead of the host's at its launcher's start."""
    told: Any = client.hgetall(f"{key_prefix(run)}clocks")
    return {host.decode(): float(skew) for host, skew in told.items()}


def judge(skews: Mapping[str, float]) -> Finding:
    """Return the finding about the two hosts whose clocks differ most."""
    check = "clocks of hosts"
    if not skews:
        return Finding(
            check, Level.unseen, "no launcher has reported its clock", "needs --run NAME of a run that goes on"
        )
    behind, ahead = max(skews, key=lambda host: skews[host]), min(skews, key=lambda host: skews[host])
    apart = skews[behind] - skews[ahead]
    if apart < SKEW_SEEN:
        return Finding(check, Level.ok, f"{len(skews)} within {SKEW_SEEN:g} s")
    level = Level.error if apart >= SKEW_HARMS else Level.warning
    return Finding(
        check, level, f"{ahead} is {apart:.1f} s ahead of {behind}", "keep all by NTP: timedatectl set-ntp true"
    )
