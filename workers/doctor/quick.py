"""The checks that take milliseconds: every launcher makes them between finding its servers and starting processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import amqp
import redis

from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError
from workers.doctor import broker_checks, clocks, machine, redis_server
from workers.doctor.broker_facts import BrokerFacts, over_amqp
from workers.doctor.findings import Finding, Level
from workers.servers import Servers, kind_of

logger = logging.getLogger(__name__)


def quick(
    found: Servers, run: str, folder: Path, say: Callable[[str], object], *, processes: int = 1, league: bool = False
) -> None:
    """Check the servers `found` and this machine; `say` a line for each warning.

    `processes`: number that the launcher will start here. `league`: whether the run has one. Raises BrokerError with
    everything that would prevent the run.
    """
    findings = [
        *of_broker(found.broker_url, Topology(run), calls=league)[0],
        *of_redis(found.redis_url, run, league=league, private=bool(found.children), reports=True),
        *machine.judge(machine.inspect(folder), processes),
    ]
    for one in findings:
        if one.level is Level.warning:
            say(str(one))
    if errors := [str(one) for one in findings if one.level is Level.error]:
        errors.append("so the run would not work; for details run python -m workers.doctor")
        raise BrokerError("\n".join(errors).removeprefix(f"{Level.error}: "))  # which is printed before any error


def of_broker(url: str, topology: Topology, *, calls: bool) -> tuple[list[Finding], BrokerFacts | None]:
    """Return the findings about a broker by its own protocol, and the facts behind them."""
    if kind_of(url) == "redis":
        return [broker_checks.judge_redis_broker()], None
    try:
        facts = over_amqp(url, topology)
    except (amqp.AMQPError, OSError) as error:
        return [Finding("broker", Level.error, f"it went away: {error}", "see its log")], None
    return list(broker_checks.judge(facts, topology, calls=calls)), facts


def of_redis(url: str, run: str, *, league: bool, private: bool, reports: bool = False) -> Iterator[Finding]:
    """Yield the findings about a Redis. `reports`: store the difference of this machine's clock there."""
    try:
        facts = redis_server.inspect(url, run)
        if reports and facts.refused is None:
            with redis_client.connect(url) as client:
                clocks.report(client, run, facts.skew)
    except (redis.RedisError, OSError) as error:
        yield Finding("Redis", Level.error, f"it went away: {error}", "see its log")
        return
    yield from redis_server.judge(facts, league=league, private=private)
