"""The shared part of the league's command lines: options for the run, and errors as one message."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import redis

from league.models.pool import Pool
from league.redis.store import Store
from league.redis.texts import text
from warren import redis_client, standard_streams
from warren.environment import secret
from warren.errors import BrokerError, ConfigurationError, UnknownName, WarrenError

URL_VARIABLE, RUN_VARIABLE = "WARREN_REDIS_URL", "WARREN_RUN"
OF_AN_ENDED_RUN = "What a run that has ended left is shown by python -m league.replay --file runs/PROJECT/TRIAL"


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which league: --redis and --run."""
    parser.add_argument("--redis", help=f"URL of Redis; default: {URL_VARIABLE}")
    parser.add_argument(
        "--run", default=os.environ.get(RUN_VARIABLE), help=f"name of the run on the servers; default: {RUN_VARIABLE}"
    )


def run_prefix(given: argparse.Namespace) -> str:
    """Return the first part of every key of the run. Raises ConfigurationError if no run is named."""
    if not given.run:
        raise ConfigurationError(f"no run is named; give --run NAME, as the launcher printed it, or set {RUN_VARIABLE}")
    return f"warren.{given.run}:"


def client(given: argparse.Namespace) -> Any:
    """Return a connection to Redis that has answered. Raises ConfigurationError without a URL, else BrokerError."""
    url = given.redis or secret(URL_VARIABLE)
    if not url:
        raise ConfigurationError(
            f"where Redis is was not given; give --redis URL or set {URL_VARIABLE}: for the newest run below runs/, "
            f'while it goes on, by eval "$(python -m workers.servers env)". {OF_AN_ENDED_RUN}'
        )
    try:
        found = redis_client.connect(url)
        found.ping()
    except (redis.RedisError, ValueError) as error:
        raise BrokerError(f"Redis does not answer ({error}); is its URL right? {OF_AN_ENDED_RUN}") from None
    return found


def existing(given: argparse.Namespace) -> tuple[Store, Pool]:
    """Return the league and the pool of the run that the options name. Raises UnknownName if it has no league."""
    connection, prefix = client(given), run_prefix(given)
    store = Store(connection, f"{prefix}league:")
    if not connection.exists(f"{store.prefix}settings"):
        pattern = "warren.*:league:settings"
        runs = [text(key).removeprefix("warren.").rpartition(":league:")[0] for key in connection.scan_iter(pattern)]
        raise UnknownName("run with a league", given.run, runs, "" if runs else "this Redis holds none")
    return store, Pool(connection, prefix)


def value_of(given: str) -> Any:
    """Return a value that a person wrote: parsed if it is JSON, else as text."""
    try:
        return json.loads(given)
    except json.JSONDecodeError:
        return given


def guarded(run: Callable[[], int]) -> int:
    """Call `run` and return its exit status; print an error of Warren or of a file as one message, no traceback."""
    standard_streams.prepare()
    try:
        return run()
    except WarrenError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except redis.RedisError as error:  # Redis had answered at first
        print(f"error: Redis failed ({error}); nothing is half done: try again once it answers", file=sys.stderr)
        return 2
    except OSError as error:
        place = error.filename or "a file"
        print(f"error: {place}: {error.strerror}; name a place that is there and that you may use", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
