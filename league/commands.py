"""What the league's command lines share: where the league is, and errors as one message."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import redis

from warren.errors import BrokerError, ConfigurationError, WarrenError

URL_VARIABLE = "WARREN_REDIS_URL"


def add_source(parser: argparse.ArgumentParser) -> None:
    """Options that say which league: --redis and --run."""
    parser.add_argument("--redis", help=f"URL of Redis; default: {URL_VARIABLE}")
    parser.add_argument("--run", help="name of the run on the servers")


def run_prefix(given: argparse.Namespace) -> str:
    """The first part of every key of the run. Raises ConfigurationError when none is named."""
    if not given.run:
        raise ConfigurationError("no run is named; give --run NAME, as the launcher printed it")
    return f"warren.{given.run}:"


def client(given: argparse.Namespace) -> Any:
    """A connection to Redis that answered. Raises ConfigurationError without a URL, BrokerError where none answers."""
    url = given.redis or os.environ.get(URL_VARIABLE)
    if not url:
        raise ConfigurationError(f"where Redis is was not given; give --redis URL or set {URL_VARIABLE}")
    try:
        found = redis.Redis.from_url(url)
        found.ping()
    except (redis.RedisError, ValueError) as error:
        raise BrokerError(f"Redis does not answer ({error}); is its URL right, and is it running?") from None
    return found


def connected(given: argparse.Namespace) -> tuple[Any, str]:
    """(connection, prefix of the league's keys) of the league that the options name."""
    return client(given), f"{run_prefix(given)}league:"


def guarded(run: Callable[[], int]) -> int:
    """The exit status of `run`; an error of Warren's own is printed as one message, with no traceback."""
    try:
        return run()
    except WarrenError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
