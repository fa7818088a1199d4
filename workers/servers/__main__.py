"""`python -m workers.servers`: the state of a run's servers, control of its private RabbitMQ, installation, TLS."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from warren.errors import WarrenError
from workers.servers import certificates, debian, record
from workers.servers.checks import check_broker, check_redis, redact
from workers.servers.machine import Machine
from workers.servers.modes import OF_A_RUN
from workers.servers.private_rabbitmq import Node


def main(argv: list[str]) -> int:
    """Run one command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.servers", description=__doc__)
    parser.add_argument("--run", metavar="RUN", help="the run's name, or its folder (default: the newest below runs/)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("status", help="show the run's servers and whether they answer")
    commands.add_parser("env", help='for other commands to find the run: eval "$(python -m workers.servers env)"')
    control = commands.add_parser(
        "rabbitmqctl", add_help=False, prefix_chars="\0",  # all that follows, options too, is for rabbitmqctl
        help="run rabbitmqctl against the run's private RabbitMQ, e.g. `rabbitmqctl -q list_queues`",
    )  # fmt: skip
    control.add_argument("arguments", nargs=argparse.REMAINDER)
    commands.add_parser("install", help="install RabbitMQ and Redis where they are missing and that is possible")
    tls = commands.add_parser("certificates", help="make an authority for development, and certificates for TLS")
    tls.add_argument("folder", type=Path, help="with an authority already, more are made of it")
    tls.add_argument("hosts", nargs="+", metavar="HOST", help="names and addresses of the servers, as in URLs")
    options = parser.parse_args(argv)
    try:
        if options.command == "install":
            return install(Machine())
        if options.command == "certificates":
            certificates.make(options.folder, options.hosts)
            print(certificates.settings(options.folder), end="")
            return 0
        folder = record.newest() if options.run is None else record.folder_of(options.run)
        if options.command == "env":
            return environment(folder)
        return status(folder) if options.command == "status" else rabbitmqctl(folder, options.arguments)
    except WarrenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def status(folder: Path) -> int:
    """Print the record and whether both servers answer; return the exit status: 1 if one does not."""
    found = record.read(folder)
    print(f"run:    {folder}")
    print(found.description)
    if not record.runs_on(found):
        print(f"the process that used them ({found.pid}) is gone")
    failed = False
    for name, url, check in (("broker", found.broker_url, check_broker), ("Redis", found.redis_url, check_redis)):
        try:
            print(f"{name + ':':8}{redact(url)} answers: {check(url)}")
        except WarrenError as error:
            failed = True
            print(f"{name + ':':8}{error}")
    return int(failed)


def environment(folder: Path) -> int:
    """Print the shell's `export` of the run's servers, passwords included, and of its name."""
    found = record.read(folder)
    variables = {"WARREN_BROKER_URL": found.broker_url, "WARREN_REDIS_URL": found.redis_url}
    if run := record.name_of(folder):
        variables["WARREN_RUN"] = run
    if "private" in found.description or "embedded" in found.description:
        variables[OF_A_RUN] = "private"
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def rabbitmqctl(folder: Path, arguments: list[str]) -> int:
    """Run rabbitmqctl with the node name and cookie of the run's private RabbitMQ; return its exit status."""
    found = record.read(folder)
    if found.node is None:
        print(f"error: {folder} has no private RabbitMQ ({found.description})", file=sys.stderr)
        return 2
    return Node(**found.node).control(arguments or ["status"]).returncode


def install(machine: Machine) -> int:
    """Install the missing servers if possible, else say why not; return 0 in either case, as it is a convenience."""
    names = debian.missing(machine)
    if not names:
        print("RabbitMQ and Redis are installed")
    elif reason := debian.why_not(machine):
        print(f"{' and '.join(names)} not installed: {reason}")
    else:
        debian.install(names, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
