"""The run that a command line about services names, and a connection to its servers."""

from __future__ import annotations

import argparse
from typing import Any

from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.servers import check_broker, check_redis

NEEDED = {"broker-url": "WARREN_BROKER_URL", "redis-url": "WARREN_REDIS_URL", "run": "WARREN_RUN"}


def connect(options: argparse.Namespace, *problems: str) -> tuple[Topology, Any]:
    """Return (topology, Celery app) of the run that the options name, whose servers answer.

    Raises ConfigurationError, naming the options that are missing and `problems`, and BrokerError.
    """
    missing = [
        f"--{name}: not given, and {variable} is not set"
        for name, variable in NEEDED.items()
        if getattr(options, name.replace("-", "_")) is None
    ]
    if missing or problems:
        raise ConfigurationError([*missing, *problems])
    check_broker(options.broker_url)
    check_redis(options.redis_url)
    topology = Topology(options.run)
    return topology, create_app(topology, options.broker_url, options.redis_url)
