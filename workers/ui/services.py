"""The services of a run, their workers and load: as a table or as JSON, once or repeatedly."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import redis
from rich.live import Live
from rich.table import Table
from rich.text import Text

from league.cli.tables import output
from league.cli.tables import table as fitted
from tasks.admin.discovery import Served, as_dict, describe, discover, failures, unserved
from tasks.amqp.gone import GONE
from warren.arguments import number
from warren.errors import ConfigurationError
from workers.config.command_line import guarded, urls_from_environment
from workers.servers import record
from workers.ui.run_options import connect

LONGEST = 86_400.0  # s of either option at most
WATCH_EVERY = 2.0  # s between queries; each takes as long as the workers' time to answer
AWAY = (*GONE, redis.RedisError)  # raised by a query while a server is away
COLUMNS = (
    *("service", "worker", "host", "pid", "up", "busy", "waiting"),
    *("calls", "failed", "dropped", "refused", "retried", "mean batch"),
)
SPARE = (">dropped", "host", ">mean batch", ">up", ">pid", ">failed", ">waiting")  # left out on narrow terminals
RARE = ("refused", "retried")  # left out if all are 0
NUMBERS = COLUMNS.index("pid")  # the first of the columns that hold numbers


class QueryResult(NamedTuple):
    """The result of a query: services with workers, and names of services without."""

    served: list[Served]
    unserved: list[str]


Query = Callable[[], QueryResult]


def table(found: QueryResult, run: str, width: int) -> Table:
    """Return the result as a table of lines of at most `width` characters."""
    workers = len({one.worker for one in found.served})
    title = f"run {run} at {time.strftime('%X')}: {workers} workers"
    rows = describe(found.served, found.unserved)
    columns = {
        f">{name}" if index >= NUMBERS else name: [str(row[index]) for row in rows]
        for index, name in enumerate(COLUMNS)
        if name not in RARE or any(row[index] not in ("0", "") for row in rows)
    }
    styles = ["red" if row[1] == "nobody" else None for row in rows]
    drawn = fitted(columns, width, SPARE, styles)
    drawn.title, drawn.title_justify = title, "left"
    if said := failures(found.served):
        drawn.caption, drawn.caption_justify = Text("\n".join(said), "red"), "left"
    return drawn


def as_json(found: QueryResult, run: str, **more: Any) -> str:
    """Return the result as JSON."""
    return json.dumps({"run": run, "served": list(map(as_dict, found.served)), "unserved": found.unserved}, **more)


@contextlib.contextmanager
def _ctrl_c() -> Iterator[SimpleQueue[int]]:
    """Yield a queue that the first Ctrl-C puts its number into; the second one interrupts.

    A KeyboardInterrupt during a query would leave half a frame unread, and the connection could never be closed.
    """
    pressed: SimpleQueue[int] = SimpleQueue()  # its `put` may interrupt its `get`; an event's `set` hangs there

    def press(number: int, _: object) -> None:
        pressed.put(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def watch(query: Query, show: Callable[[QueryResult], None], tell: Callable[[str], None], every: float) -> int:
    """Show the result of each query until Ctrl-C and return 0; `tell` of a server that is away, and go on."""
    with _ctrl_c() as pressed, contextlib.suppress(KeyboardInterrupt):
        while True:
            began = time.monotonic()
            try:
                show(query())
            except AWAY as error:
                tell(f"cannot query: {str(error) or type(error).__name__}")
            with contextlib.suppress(Empty):
                pressed.get(timeout=max(0.0, every - (time.monotonic() - began)))
                break
    return 0


def watch_table(query: Query, run: str, every: float) -> int:
    """Print a table repeatedly, in place in a terminal; return the exit status."""
    console = output()
    if not console.is_terminal:
        return watch(query, lambda found: console.print(table(found, run, console.width)), console.print, every)
    with Live(Text("looking"), console=console, auto_refresh=False) as live:

        def show(drawn: Any) -> None:
            live.update(drawn, refresh=True)

        return watch(
            query, lambda found: show(table(found, run, console.width)), lambda error: show(Text(error, "red")), every
        )


def watch_json(query: Query, run: str, every: float) -> int:
    """Print a line of JSON per query; return the exit status."""

    def tell(error: str) -> None:
        print(json.dumps({"run": run, "error": error}), flush=True)

    try:
        return watch(query, lambda found: print(as_json(found, run), flush=True), tell, every)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def run(options: argparse.Namespace) -> int:
    """Query once or repeatedly; return the exit status: 0, or 1 if a single query finds no served service."""
    urls_from_environment(options)
    take_servers_of_run(options)
    topology, app = connect(options)

    def query() -> QueryResult:
        served = discover(app, options.timeout)
        return QueryResult(served, unserved(app, topology, served))

    if options.watch is not None:
        return (watch_json if options.json else watch_table)(query, options.run, options.watch)
    found = query()
    if options.json:
        print(as_json(found, options.run, indent=2))
    else:
        console = output()
        console.print(table(found, options.run, console.width))
    return 0 if found.served else 1


def take_servers_of_run(options: argparse.Namespace) -> None:
    """Set the servers and the name of the run that --run names by its folder or, without URLs, by its name."""
    if options.run is None or (options.broker_url and options.redis_url and not Path(options.run).is_dir()):
        return
    try:
        folder = record.folder_of(options.run)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"--run: {error}; or name its servers: --broker-url and --redis-url, or WARREN_BROKER_URL and "
            "WARREN_REDIS_URL"
        ) from None
    found = record.read(folder)
    options.broker_url, options.redis_url = found.broker_url, found.redis_url
    options.run = record.name_of(folder) or options.run


def main(description: str | None = None) -> int:
    """Parse the command line, query, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.services", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", default=os.environ.get("WARREN_RUN"), help="name or folder of the run")
    parser.add_argument("--broker-url")
    parser.add_argument("--redis-url")
    span = number(0.0, LONGEST)
    parser.add_argument("--timeout", type=span, default=1.0, help="s that workers have to answer")
    parser.add_argument(
        "--watch", nargs="?", type=span, const=WATCH_EVERY, metavar="SECONDS", help="query again and again"
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with --watch a line per query")
    options = parser.parse_args()
    return guarded(lambda: run(options))
