"""Connecting to the servers of a run: a role that is started by itself joins them and never starts any."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from warren import redis_client
from warren.environment import secret
from warren.errors import ConfigurationError, ServerAway
from workers.config.schema import Config
from workers.servers import BROKER_VARIABLE, REDIS_VARIABLE, check_broker, check_redis

logger = logging.getLogger(__name__)

REMOTE = 0.02  # s of a round trip from which on servers count as far away
AGAIN_AFTER, AGAIN_AT_MOST = 0.5, 5.0  # s between two tries to reach a server that is away
SAID_EVERY = 60.0  # s


def given_urls(config: Config) -> tuple[str | None, str | None]:
    """Return (broker URL, Redis URL) from the configuration, else from the environment."""
    return (
        config.broker.url or secret(BROKER_VARIABLE),
        config.broker.redis_url or secret(REDIS_VARIABLE),
    )


def servers_are_remote(redis_url: str) -> bool:
    """Return whether the servers are so far away that roles must send more before earlier messages are confirmed."""
    seconds = round_trip(redis_url)
    if seconds >= REMOTE:
        logger.info("the servers are %.0f ms away, there and back: more is under way at once", 1e3 * seconds)
    return seconds >= REMOTE


def round_trip(redis_url: str, tries: int = 5) -> float:
    """Return the shortest of `tries` round trips to Redis, in s: a busy machine delays some of them, hardly all."""
    taken = []
    with redis_client.connect(redis_url) as client:
        client.ping()  # connects
        for _ in range(tries):
            began = time.perf_counter()
            client.ping()
            taken.append(time.perf_counter() - began)
    return min(taken)


def connect(config: Config) -> tuple[str, str]:
    """Wait until both servers answer; return the URLs of the broker and of Redis.

    Raises BrokerError for a server that refuses this process, ConfigurationError for a URL that is missing or wrong.
    """
    broker_url, redis_url = given_urls(config)
    if broker_url is None or redis_url is None:
        missing = [name for name, url in (("broker.url", broker_url), ("broker.redis_url", redis_url)) if url is None]
        raise ConfigurationError(
            f"{' and '.join(missing)}: not given; a role started by itself joins a run's servers: "
            "set them, or WARREN_BROKER_URL and WARREN_REDIS_URL in the environment"
        )
    wait_for(lambda: check_broker(broker_url))
    wait_for(lambda: check_redis(redis_url))
    return broker_url, redis_url


def wait_for(check: Callable[[], object], pause: Callable[[float], object] = time.sleep) -> None:
    """Call `check` until it no longer raises ServerAway; `pause` waits for the given seconds between tries."""
    began, seconds, say_at = time.monotonic(), AGAIN_AFTER, 0.0
    while True:
        try:
            check()
            return
        except ServerAway as error:
            waited = time.monotonic() - began
            if waited >= say_at:
                logger.warning("waiting for it: %s", error)
                say_at = waited + SAID_EVERY
        pause(seconds)
        seconds = min(2 * seconds, AGAIN_AT_MOST)
