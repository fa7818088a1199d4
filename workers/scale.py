"""`python -m workers.scale`: start or stop processes of a live run.

python -m workers.scale --run NAME actors=4      # four actors
python -m workers.scale --run NAME actors=+1     # one more; actors=-1: one less, which finishes what it holds
python -m workers.scale --run NAME               # show how many there are
python -m workers.scale --run NAME Actor=+1      # in a run from a file: of the service or environment Actor

In a run on several hosts it changes the processes of the leading host, and gives the numbers of the others.

A run's name is in the launcher's second line. A run with servers of its own is found below runs/; for others the
servers' URLs come from options or from WARREN_BROKER_URL and WARREN_REDIS_URL.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from tasks.app import create_app
from tasks.topology import Topology
from warren import redis_client
from warren.errors import ConfigurationError
from workers.config.command_line import guarded, urls_from_environment
from workers.launch.hosts.scale_request import CHANGE, request
from workers.launch.traces.runs import own_servers
from workers.servers import check_broker, check_redis, record


def run(options: argparse.Namespace) -> int:
    """Ask the launcher, print what was done, and return exit status 0."""
    urls_from_environment(options)
    wanted = {name.strip(): change.strip() for name, _, change in (one.partition("=") for one in options.counts)}
    problems = [
        f"{one}: write it as actors=4, actors=+1 or actors=-1"
        for one in options.counts
        if not CHANGE.fullmatch(one.partition("=")[2].strip())
    ]
    own = own_runs(record.RUNS)
    if options.run is None and len(own) == 1:
        (options.run,) = own
    if options.run is None:
        problems.append(f"--run: give the run's name; {len(own)} runs below {record.RUNS} have launchers")
    broker_url, redis_url = options.broker_url, options.redis_url
    if options.run in own and not (broker_url and redis_url):
        broker_url, redis_url = own[options.run]
    if not (broker_url and redis_url) and (options.run is not None or not own):
        known = f"; below {record.RUNS} run {', '.join(sorted(own))}" if own else ""
        problems.append(
            f"--broker-url and --redis-url: not given, and WARREN_BROKER_URL and WARREN_REDIS_URL are not set; "
            f"a run with servers of its own is found below {record.RUNS}{known}"
        )
    if problems:
        raise ConfigurationError(problems)
    check_broker(broker_url)
    check_redis(redis_url)
    topology = Topology(options.run)
    client = redis_client.connect(redis_url)
    answer = request(create_app(topology, broker_url, redis_url), options.run, client, wanted, options.request)
    for line in answer["done"]:
        print(line)
    for line in answer.get("notes", []):
        print(f"note: {line}")
    print(", ".join(f"{setting}={number}" for setting, number in answer["counts"].items()))
    return 0


def own_runs(runs: Path) -> dict[str, tuple[str, str]]:
    """Return (broker URL, Redis URL) by name of each run below `runs` whose launcher is running."""
    named = {}
    for folder, servers in own_servers(runs).items():
        with contextlib.suppress(ConfigurationError, OSError):  # it has just ended
            if name := record.name_of(folder):
                named[name] = (servers.broker_url, servers.redis_url)
    return named


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default=os.environ.get("WARREN_RUN"), help="name of the run")
    parser.add_argument("--broker-url")
    parser.add_argument("--redis-url")
    parser.add_argument("--request", metavar="ID", help="of a request that was not answered: nothing is done twice")
    parser.add_argument("counts", nargs="*", metavar="actors=N", help="the new count, or +N or -N")
    options = parser.parse_args()
    return guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
