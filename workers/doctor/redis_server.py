"""Facts and findings about a Redis. INFO is enough, as managed services refuse CONFIG."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tasks.topology import key_prefix
from warren import redis_client
from workers.doctor.broker_checks import NEAR, size
from workers.doctor.findings import Finding, Level
from workers.servers.checks import CHECK_TIMEOUT

OLDEST = (6, 2)  # oldest version with all commands in use; 7.0 and 8.0 are tested
SKEW_SEEN, SKEW_HARMS = 1.0, 30.0  # s


@dataclass(frozen=True)
class RedisFacts:
    """Facts about a Redis. `info`: all sections of INFO; `skew`: s by which its clock is ahead of this machine's."""

    info: dict[str, Any]
    skew: float
    refused: str | None = None  # why a write was refused


def inspect(url: str, run: str) -> RedisFacts:
    """Query the Redis at `url`, and write a key of `run`. Raises redis.RedisError if it goes away."""
    client = redis_client.connect(
        url, socket_connect_timeout=CHECK_TIMEOUT, socket_timeout=CHECK_TIMEOUT,
        retry=Retry(NoBackoff(), 0),
    )  # fmt: skip
    try:
        info: Any = client.info()
        before = time.time()
        told: Any = client.time()
        after = time.time()
        seconds, microseconds = told
        refused, key = None, f"{key_prefix(run)}probe"
        try:
            client.set(key, 1, px=1000)
            client.delete(key)
        except redis.ResponseError as error:
            refused = str(error)
        return RedisFacts(info, seconds + microseconds / 1e6 - (before + after) / 2, refused)
    finally:
        client.close()


def judge(facts: RedisFacts, *, league: bool, private: bool) -> Iterator[Finding]:
    """Yield the findings. `league`: the run keeps a league there; `private`: the Redis ends with the run."""
    yield _version(facts)
    yield _writes(facts)
    yield _memory(facts)
    yield _eviction(facts)
    yield _persistence(facts, league, private)
    yield _clock(facts)


def _version(facts: RedisFacts) -> Finding:
    valkey = facts.info.get("server_name") == "valkey"
    version = str(facts.info.get("valkey_version" if valkey else "redis_version", ""))
    name = f"{'Valkey' if valkey else 'Redis'} {version}"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        return Finding("Redis version", Level.error, f"{name} is too old", "use Redis 7.0 or later")
    return Finding("Redis version", Level.ok, name)


def _writes(facts: RedisFacts) -> Finding:
    if facts.refused is None:
        return Finding("Redis writes", Level.ok, "accepted")
    remedies = {
        "READONLY": "this is a replica; name its master",
        "MISCONF": "it cannot save to its disk: free some there, or set stop-writes-on-bgsave-error no",
        "OOM": "it is full: raise maxmemory",
        "NOPERM": "the user lacks permissions: ACL SETUSER NAME ~warren.* &* +@all",
    }
    remedy = remedies.get(facts.refused.partition(" ")[0], "see its log")
    return Finding("Redis writes", Level.error, f"refused: {facts.refused}", remedy)


def _memory(facts: RedisFacts) -> Finding:
    used, limit = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0))
    total = int(facts.info.get("total_system_memory", 0))
    if not limit:
        found = f"{size(used)}, no limit of its own{f', of {size(total)} on its machine' if total else ''}"
        if total and used >= NEAR * total:
            return Finding("Redis memory", Level.warning, found, "give its machine more memory")
        return Finding("Redis memory", Level.ok, found)
    found = f"{size(used)} of maxmemory {size(limit)}"
    if used >= NEAR * limit:
        return Finding("Redis memory", Level.warning, found, "raise maxmemory: at it, writes fail or keys are evicted")
    return Finding("Redis memory", Level.ok, found)


def _eviction(facts: RedisFacts) -> Finding:
    policy, limit = str(facts.info.get("maxmemory_policy", "")), int(facts.info.get("maxmemory", 0))
    check = "maxmemory-policy"
    if not policy:
        return Finding(check, Level.unseen, "unknown", "needs INFO memory")
    if policy == "noeviction":
        return Finding(check, Level.ok, policy)
    remedy = "redis-cli CONFIG SET maxmemory-policy noeviction"
    what = "results, payloads and leases" if policy.startswith("volatile") else "models, results and the league itself"
    if limit:
        return Finding(check, Level.error, f"{policy}: at {size(limit)} Redis evicts {what}", remedy)
    return Finding(check, Level.warning, f"{policy}, without effect while maxmemory is 0", remedy)


def _persistence(facts: RedisFacts, league: bool, private: bool) -> Finding:
    check = "appendonly"
    if facts.info.get("aof_enabled"):
        if facts.info.get("aof_last_write_status", "ok") != "ok":
            return Finding(check, Level.error, "the last write to its file failed", "free disk space on its machine")
        return Finding(check, Level.ok, "on")
    if private:
        return Finding(check, Level.ok, "off: this Redis ends with the run, whose folder keeps the results")
    found = "off: a Redis that restarts loses the run's weights, results and counts"
    if league:
        found = "off: a Redis that restarts loses the league since its last snapshot"
    return Finding(check, Level.warning, found, "redis-cli CONFIG SET appendonly yes, and in redis.conf")


def _clock(facts: RedisFacts) -> Finding:
    found = f"Redis is {abs(facts.skew):.1f} s {'ahead of' if facts.skew >= 0 else 'behind'} this machine"
    remedy = "keep both clocks by NTP (timedatectl set-ntp true): leases and times of messages compare them"
    if abs(facts.skew) >= SKEW_HARMS:
        return Finding("clock", Level.error, found, remedy)
    if abs(facts.skew) >= SKEW_SEEN:
        return Finding("clock", Level.warning, found, remedy)
    return Finding("clock", Level.ok, f"within {SKEW_SEEN:g} s of Redis")
