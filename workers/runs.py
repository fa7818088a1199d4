"""`python -m workers.runs`: list live runs and leftovers of killed ones on the servers; stop and remove them.

python -m workers.runs                    # the runs below runs/ with servers of their own, and those on named servers
python -m workers.runs stop NAME          # stop like Ctrl-C in its launcher: checkpoints are written, nothing is left
python -m workers.runs purge NAME         # remove the queues, exchanges and Redis keys of a dead run

Servers that several runs share are named by options, or by WARREN_BROKER_URL and WARREN_REDIS_URL.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from warren.errors import BrokerError, ConfigurationError
from workers.config.command_line import guarded, urls_from_environment
from workers.launch.traces import runs


def listed(options: argparse.Namespace) -> int:
    """Print every run; return exit status 0."""
    places = runs.places(options)
    any_found = False
    for servers in places:
        try:
            seen = runs.list_runs(servers)
        except BrokerError as error:
            print(f"passed over: {error}", file=sys.stderr)
            continue
        for one in seen.runs:
            any_found = True
            print(one.describe())
            if one.gone:
                messages = ", ".join(f"{name} {count}" for name, count in runs.waiting(one).items())
                print(f"    {f'messages: {messages}; ' if messages else ''}to remove it: purge {one.run}")
        if seen.unseen:
            print(f"note: {runs.explain_unlisted(seen.unseen)}")
    if not any_found:
        looked = f"{len(places)} pairs of servers" if places else "no servers: none are named, and no run has its own"
        print(f"no runs ({looked})")
    return 0


def stop(options: argparse.Namespace) -> int:
    """Ask a run's launcher to end it; return exit status 0."""
    for line in runs.stop(runs.find(options.name, runs.places(options))):
        print(line)
    return 0


def purge(options: argparse.Namespace) -> int:
    """Remove what a killed run left, after asking; return the exit status."""
    found = runs.find(options.name, runs.places(options))
    if found.gone and not options.yes:
        if not sys.stdin.isatty():
            raise ConfigurationError(f"purge {found.run}: not confirmed; add --yes where there is no terminal to ask")
        print(found.describe())
        if input(f"remove all that {found.run} left on the servers? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return 1
    print(runs.purge(found))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.runs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker-url", help="or WARREN_BROKER_URL")
    parser.add_argument("--redis-url", help="or WARREN_REDIS_URL")
    parser.add_argument(
        "--rabbitmqctl",
        metavar="COMMAND",
        help="the broker's rabbitmqctl, which lists what is left of runs whose Redis keys are gone",
    )
    parser.add_argument(
        "--management-url",
        metavar="URL",
        help="the broker's management API, which lists the same; the broker's user and password are sent there",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="every run, and what killed ones left (the default)").set_defaults(act=listed)
    stopping = commands.add_parser("stop", help="have a run end cleanly")
    stopping.add_argument("name", metavar="NAME", help="the run's name: the launcher's second line")
    stopping.set_defaults(act=stop)
    purging = commands.add_parser("purge", help="remove the queues, exchanges and keys of a run that lives no more")
    purging.add_argument("name", metavar="NAME", help="the run's name, as the list has it")
    purging.add_argument("--yes", action="store_true", help="do not ask")
    purging.set_defaults(act=purge)
    options = parser.parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    urls_from_environment(options)
    act: Callable[[argparse.Namespace], int] = getattr(options, "act", listed)
    return act(options)


if __name__ == "__main__":
    sys.exit(main())
