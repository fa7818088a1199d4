"""Where a role started by itself finds the run's servers: it joins them, it never starts any."""

from __future__ import annotations

from warren.environment import secret
from warren.errors import ConfigurationError
from workers.config.schema import Config
from workers.servers import BROKER_VARIABLE, REDIS_VARIABLE, check_broker, check_redis


def given_urls(config: Config) -> tuple[str | None, str | None]:
    """(broker URL, Redis URL) from the configuration, else from the environment."""
    return (
        config.broker.url or secret(BROKER_VARIABLE),
        config.broker.redis_url or secret(REDIS_VARIABLE),
    )


def connect(config: Config) -> tuple[str, str]:
    """The URLs of the broker and of Redis, both checked to answer. Raises BrokerError or ConfigurationError."""
    broker_url, redis_url = given_urls(config)
    if broker_url is None or redis_url is None:
        missing = [name for name, url in (("broker.url", broker_url), ("broker.redis_url", redis_url)) if url is None]
        raise ConfigurationError(
            f"{' and '.join(missing)}: not given; a role started by itself joins a run's servers: "
            "set them, or WARREN_BROKER_URL and WARREN_REDIS_URL in the environment"
        )
    check_broker(broker_url)
    check_redis(redis_url)
    return broker_url, redis_url
