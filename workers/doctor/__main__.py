"""`python -m workers.doctor`: find the problems that a run would have, with their remedies.

python -m workers.doctor                                # the servers that a run would take here, this machine
python -m workers.doctor experiment=kuhn actors=8       # for a run with these settings
python -m workers.doctor --run NAME                     # for a live run, by its name or folder
python -m workers.doctor --role learner run=NAME ...    # before that role starts; needs no run folder
python -m workers.doctor --broker-url URL --redis-url URL --rabbitmqctl "docker exec NAME rabbitmqctl"

The servers' URLs may also come from WARREN_BROKER_URL and WARREN_REDIS_URL. Exit status 0: a run would work, maybe with
warnings; 2: it would not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Generator
from contextlib import closing

import redis
from rich.console import Console

from tasks.topology import Topology
from warren import redis_client
from warren.errors import ConfigurationError, WarrenError
from workers.config.command_line import guarded, urls_from_environment
from workers.config.roles import ROLES
from workers.config.run_names import run_folder
from workers.config.schema import Config
from workers.doctor import broker_checks, clocks, machine
from workers.doctor.findings import Finding, Level, Rows, as_json, status_of, summary
from workers.doctor.management import with_management
from workers.doctor.quick import of_broker, of_redis
from workers.doctor.rabbitmqctl import with_rabbitmqctl
from workers.doctor.target import Target, settings, target
from workers.servers import record
from workers.servers.checks import redact


def examine(at: Target, config: Config, management_url: str | None) -> Generator[Finding, None, None]:
    """Yield the findings about the servers."""
    run, league = str(config.run), config.league is not None
    topology = Topology(run)
    findings, facts = of_broker(at.broker_url, topology, calls=league)
    yield from findings
    if facts is not None:
        facts = with_management(facts, at.broker_url, management_url)
        if at.control is not None:
            facts = with_rabbitmqctl(facts, at.control)
        yield from broker_checks.judge_managed(facts)
    yield from of_redis(at.redis_url, run, league=league, private=at.private)
    try:
        with redis_client.connect(at.redis_url) as client:
            yield clocks.judge(clocks.read(client, run))
    except redis.RedisError as error:
        yield Finding("clocks of hosts", Level.unseen, redact(str(error)), "needs a Redis that answers")


def check(options: argparse.Namespace, describe: Callable[[str], None]) -> Generator[Finding, None, None]:
    """Yield all findings, each as soon as it is known; `describe` gets a line about the servers that were found."""
    folder = None
    if options.run is not None:
        try:
            folder = record.folder_of(options.run)
        except ConfigurationError as error:
            if not options.broker_url:
                raise ConfigurationError(f"--run: {error}; or name its servers by --broker-url") from None
    config, findings = settings(options.settings, folder, options.run, options.role)
    yield from findings
    try:
        with target(config, folder, options.broker_url, options.redis_url, options.rabbitmqctl) as at:
            describe(at.description)
            yield from examine(at, config, options.management_url)
    except WarrenError as error:
        yield Finding("servers", Level.error, str(error), "correct the URL, or take broker=auto")
    if options.role is None:
        yield from machine.judge(machine.inspect(folder or run_folder(config)), machine.processes_of(config))
    else:
        yield from machine.judge(machine.inspect(None), processes=1)


def run(options: argparse.Namespace) -> int:
    """Check, print each finding as soon as it is known, or all as JSON at the end; return the exit status."""
    urls_from_environment(options)
    described = ["servers: not found"]
    findings: list[Finding] = []
    console = Console()
    rows = None if options.json else Rows(console)
    with closing(check(options, described.append)) as found:
        for one in found:
            findings.append(one)
            if rows is not None:
                rows.add(one)
    if rows is None:
        print(as_json(findings))
    else:
        rows.end()
        console.print(described[-1], highlight=False)
        console.print(summary(findings), highlight=False)
    return status_of(findings)


def main() -> int:
    """Parse the command line, check, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "settings", nargs="*", metavar="SETTING=VALUE", help="overrides, as python -m workers.train takes"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--run", help="name or folder of a run that goes on (default: WARREN_RUN)")
    which.add_argument(
        "--role",
        choices=[role.name for role in ROLES],
        help="check for one process of this role, which checks its folder and GPU by itself",
    )
    parser.add_argument("--broker-url")
    parser.add_argument("--redis-url")
    parser.add_argument(
        "--management-url",
        help="RabbitMQ's management API (default: http://BROKER_HOST:15672 for amqp://, none for amqps://)",
    )
    parser.add_argument("--rabbitmqctl", metavar="COMMAND", help="the command line that is the broker's rabbitmqctl")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_intermixed_args()
    if options.role is None:
        options.run = options.run or os.environ.get("WARREN_RUN")
    return guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
