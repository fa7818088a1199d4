"""`python -m workers.dashboard`: show leagues and plain runs in a browser, live or ended.

python -m workers.dashboard                    # all runs below runs/
python -m workers.dashboard runs/kuhn/TRIAL    # one run; or the name of a live one

It prints the address to open, which contains a token; WARREN_DASHBOARD_TOKEN sets your own. It listens on 127.0.0.1
unless --host says otherwise. It only reads runs, except that it reports a person's rated games.
"""

from __future__ import annotations

import argparse
import errno
import secrets
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import quote

from warren.environment import secret
from warren.errors import ConfigurationError
from warren.user_code import pip, requirement
from workers.config.command_line import guarded
from workers.dashboard.access import LOOPBACK, TOKEN
from workers.dashboard.catalogue import Catalogue
from workers.servers import record

PORT = 8050
NEEDED = (
    "python -m workers.dashboard needs starlette and uvicorn, and one is not installed; install them: {} install {}"
)


def catalogue_of(given: str) -> Catalogue:
    """Return the runs that a command line names: those in a folder, or a live run, by its name."""
    path = Path(given)
    return Catalogue(path if path.is_dir() else record.folder_of(given))


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigurationError if the address is taken or is not this machine's."""
    if not 0 <= port <= 65535:
        raise ConfigurationError(f"--port: {port} is no port; use one from 1 to 65535, or 0 for any")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--host: {host} is no address ({error}); name one of this machine") from None
    try:
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigurationError(f"--host: {host} is not this machine's; name one of its addresses") from None
        raise ConfigurationError(
            f"--port: {host}:{port} cannot be used ({error}); choose another, or 0 for any"
        ) from None
    return made


def run(given: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return exit status 0."""
    try:
        import uvicorn

        from workers.dashboard.server import Dashboard
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise ConfigurationError(NEEDED.format(pip(), requirement("dashboard"))) from None
    dashboard = Dashboard(catalogue_of(given.place))
    token = secret(TOKEN) or secrets.token_urlsafe(24)
    place = listening(given.host, given.port)
    port = place.getsockname()[1]
    open_to_all = given.host in ("0.0.0.0", "::")
    names = [f"[{name}]" if name.count(":") > 1 and name[0] != "[" else name for name in (given.host, *given.name)]
    hosts = ("*",) if open_to_all and not given.name else (*LOOPBACK, *names)
    shown = names[1] if given.name else socket.gethostname() if open_to_all else names[0]
    print(f"http://{shown}:{port}/?token={quote(token, safe='')}", flush=True)
    config = uvicorn.Config(
        dashboard.app(token, hosts),
        proxy_headers=False,
        lifespan="off",
        log_config=None,  # other loggers keep their handlers
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=256,
        timeout_graceful_shutdown=1,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn stops by itself, then passes the signal on
    uvicorn.Server(config).run(sockets=[place])
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return its exit status, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.dashboard", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "place", nargs="?", default="runs", metavar="RUN or FOLDER", help="a run, or a folder of runs; default: runs"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1, this machine alone"
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0: any that is free")
    parser.add_argument(
        "--name", action="append", default=[], metavar="HOST", help="name by which browsers may address this machine"
    )
    return guarded(lambda: run(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
