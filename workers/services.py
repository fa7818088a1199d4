"""`python -m workers.services`: what a run serves, by which workers, how busy, since when.

python -m workers.services --run NAME            # a table
python -m workers.services --run NAME --watch    # again and again, until Ctrl-C
python -m workers.services --run NAME --json     # for programs: {"served": [...], "unserved": [...]}

The servers' URLs and the run come from options or from WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tasks.app import create_app
from tasks.discovery import as_dict, describe, discover, unserved
from tasks.topology import Topology
from warren.errors import ConfigurationError
from workers.main import guarded
from workers.servers import check_broker, check_redis

WATCH_EVERY = 1.0  # s between looks, each of which takes as long again
COLUMNS = (
    *("service", "worker", "host", "pid", "up", "busy", "waiting"),
    *("calls", "failed", "dropped", "mean batch"),
)


def table(rows: list[tuple[str, ...]], run: str) -> Table:
    """The rows as a table."""
    found = Table(*COLUMNS, title=f"services of run {run}", title_justify="left")
    for row in rows:
        found.add_row(*row, style="red" if row[1] == "nobody" else None)
    return found


def run(options: argparse.Namespace) -> int:
    """Look once, or again and again; exit status 0, or 1 when nothing is served."""
    missing = [
        f"--{name}: not given, and {variable} is not set"
        for name, variable in (
            ("broker-url", "WARREN_BROKER_URL"),
            ("redis-url", "WARREN_REDIS_URL"),
            ("run", "WARREN_RUN"),
        )
        if getattr(options, name.replace("-", "_")) is None
    ]
    if missing:
        raise ConfigurationError(missing)
    check_broker(options.broker_url)
    check_redis(options.redis_url)
    topology = Topology(options.run)
    app = create_app(topology, options.broker_url, options.redis_url)
    served = discover(app, options.timeout)
    if options.json:
        found = {"run": options.run, "served": list(map(as_dict, served)), "unserved": unserved(app, topology, served)}
        print(json.dumps(found, indent=2))
    elif options.watch:
        with Live(console=Console(), screen=False, auto_refresh=False) as live:
            while True:
                live.update(table(describe(served, unserved(app, topology, served)), options.run), refresh=True)
                time.sleep(WATCH_EVERY)
                served = discover(app, options.timeout)
    else:
        Console().print(table(describe(served, unserved(app, topology, served)), options.run))
    return 0 if served else 1


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.services", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default=os.environ.get("WARREN_RUN"), help="name of the run")
    parser.add_argument("--broker-url", default=os.environ.get("WARREN_BROKER_URL"))
    parser.add_argument("--redis-url", default=os.environ.get("WARREN_REDIS_URL"))
    parser.add_argument("--timeout", type=float, default=1.0, help="s that workers have to answer")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--watch", action="store_true")
    kind.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return guarded(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
