"""The shared part of the league's command lines: options for the run, and errors as one message."""

from __future__ import annotations

import argparse
import errno
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
LEAGUE_KEY, POOL_KEY = "league:settings", "pool:newest"  # after a run's prefix; these exist if it has any
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
    if not connection.exists(f"{prefix}{LEAGUE_KEY}"):
        if connection.exists(f"{prefix}{POOL_KEY}"):
            remedy = "it trains without a league: python -m league.models lists, shows and exports its models alone"
            raise UnknownName("run with a league", given.run, [], remedy)
        runs = _runs_with(connection, LEAGUE_KEY)
        raise UnknownName("run with a league", given.run, runs, "" if runs else "this Redis holds none")
    return store, Pool(connection, prefix)


def existing_pool(given: argparse.Namespace) -> Pool:
    """Return the pool of the run that the options name, with a league or not. Raises UnknownName if it has neither."""
    connection, prefix = client(given), run_prefix(given)
    if not connection.exists(f"{prefix}{LEAGUE_KEY}", f"{prefix}{POOL_KEY}"):
        runs = sorted({*_runs_with(connection, LEAGUE_KEY), *_runs_with(connection, POOL_KEY)})
        raise UnknownName("run with models", given.run, runs, "" if runs else "this Redis holds none")
    return Pool(connection, prefix)


def _runs_with(connection: Any, key: str) -> list[str]:
    """Return the names of the runs that have that key."""
    found = (text(one) for one in connection.scan_iter(f"warren.*:{key}"))
    return [one.removeprefix("warren.").removesuffix(f":{key}") for one in found]


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
        status = run()
        sys.stdout.flush()
        return status
    except WarrenError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except redis.RedisError as error:  # Redis had answered at first
        print(f"error: Redis failed ({error}); nothing is half done: try again once it answers", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if not standard_streams.output_closed():  # another pipe, or a socket, broke
            raise
        return standard_streams.PIPE_CLOSED
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            standard_streams.drop_output()
            place = error.filename or "a file or standard output"
            print(f"error: {place}: {error.strerror}; free some of the disk that it is on", file=sys.stderr)
            return standard_streams.DISK_FULL
        place = error.filename or "a file"
        print(f"error: {place}: {error.strerror}; name a place that is there and that you may use", file=sys.stderr)
        return 2
    except UnicodeEncodeError as error:  # Redis and files of names take UTF-8
        print(f"error: {error.object!r} is not text in UTF-8; write it in that encoding", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
