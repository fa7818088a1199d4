"""A private Redis: loopback only, a free port, a random password, its files under the run's folder."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from warren import redis_client
from warren.errors import BrokerError
from workers.servers.checks import CHECK_TIMEOUT, check_redis
from workers.servers.exposure import OpenAddress
from workers.servers.ports import LOOPBACK, listens
from workers.servers.process import Child, Starting, private_folder, write_secret

READY_TIMEOUT = 30.0  # seconds until it answers; it takes a tenth of one
LOADING_TIMEOUT = 900.0  # seconds until it has read its append-only file; about 10 per GB
GRACE = 5.0  # seconds between SIGTERM and SIGKILL; it writes its append-only file meanwhile
GONE_WITHIN = GRACE + 10.0  # seconds until a server has ended whose launcher was killed
UP, LOADING, AWAY = "up", "loading", "away"
# Redis's errors for an append-only file that it cannot read. It can read one that is only cut off at its end.
DAMAGED = re.compile(r"append[- ]only file|AOF|RDB format|wrong signature", re.IGNORECASE)
PATTERN = frozenset("*?[")  # characters of a pattern of file names
DATA = ("appendonlydir", "appendonly.aof")  # the latter of Redis 6


class PrivateRedis:
    """A redis-server (or valkey-server) that was started, and serves once it is ready.

    `url` holds its password, which is on no command line.
    """

    version = "Redis"  # its own name and version, once it is ready
    note = ""  # about damaged data that it did not load

    def __init__(self, child: Child, folder: Path, port: int, password: str) -> None:
        self.child, self.folder, self.port = child, folder, port
        self._password = password

    def wait_until_ready(self) -> None:
        """Wait until it answers a PING. Raises BrokerError, with its last lines.

        Data of an earlier server that it cannot read is set aside: it then starts empty, and `note` says so.
        """
        try:
            self._wait()
        except BrokerError:
            if self.child.alive or not DAMAGED.search(self.child.output()):
                raise
            self.note = f"empty, since what the last one left is damaged; that is in {set_aside(self.folder)}"
            self.child.start_again()
            self._wait()
        self.version = check_redis(self.url)

    def _wait(self) -> None:
        self.child.wait_until(lambda: _state(self.url) != AWAY, READY_TIMEOUT)
        self.child.wait_until(lambda: _state(self.url) == UP, LOADING_TIMEOUT)

    def stop(self) -> None:
        """Stop the server."""
        self.child.stop()

    @property
    def url(self) -> str:
        """Return the URL of database 0."""
        return self.database(0)

    def database(self, number: int) -> str:
        """Return the URL of one of the 16 databases, with the user name that redis-cli 7 needs."""
        return f"redis://default:{self._password}@{LOOPBACK}:{self.port}/{number}"

    def empty(self, number: int) -> None:
        """Remove all keys of one database."""
        with redis_client.connect(self.database(number)) as client:
            client.flushdb()

    @classmethod
    def start(cls, binary: Path, folder: Path, **given: Any) -> PrivateRedis:
        """Start `binary` and wait until it is ready. Raises BrokerError, with its last lines."""
        return cls.begin(binary, folder, **given).finish()

    @classmethod
    def begin(
        cls,
        binary: Path,
        folder: Path,
        *,
        port: int | None = None,
        durable: bool = False,
        open_at: OpenAddress | None = None,
    ) -> Starting[PrivateRedis]:
        """Begin to start `binary`.

        Every write goes to an append-only file, so that a killed server comes back with its data (see
        `Child.start_again`); while the disk is slow, it may lack the writes of the last two seconds. `durable`: keep
        the data of an earlier server in `folder`, even of one whose launcher was killed a moment ago; else the server
        starts empty. `open_at`: an address for other machines.

        Raises ConfigurationError if the given `port` is taken, BrokerError if the earlier server does not end.
        """
        private_folder(folder)
        if durable:
            wait_for_the_last(folder)
        else:
            forget(folder)
        password = secrets.token_hex(24) if open_at is None else open_at.password
        addresses = (LOOPBACK,) if open_at is None else open_at.addresses

        def attempt(at: int) -> PrivateRedis:
            write_secret(folder / "redis.conf", os.fsencode(configuration(folder, at, password, addresses)))
            child = Child("private Redis", _line(binary, folder / "redis.conf"), folder / "redis.log", grace=GRACE)
            return cls(child, folder, at, password)

        return Starting(attempt, port, "Redis")


def holds_data(folder: Path) -> bool:
    """Return whether a server has left data in `folder`."""
    return any((folder / name).exists() for name in DATA)


def forget(folder: Path) -> None:
    """Remove the data of a server in `folder`; keep its logs."""
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def set_aside(folder: Path) -> Path:
    """Move the data of a server in `folder` to another folder; return that."""
    aside = folder / f"damaged-{time.time_ns() // 1_000_000}"
    aside.mkdir()
    for name in DATA:
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    return aside


def wait_for_the_last(folder: Path) -> None:
    """Wait for the end of an earlier server in `folder`: two would write the same append-only file."""
    path = folder / "redis.conf"
    text = os.fsdecode(path.read_bytes()) if path.exists() else ""
    given = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    if "port" not in given:
        return
    url = f"redis://default:{given['requirepass']}@{LOOPBACK}:{given['port']}/0"
    deadline = time.monotonic() + GONE_WITHIN
    while listens(int(given["port"])) and _is_ours(url):
        if time.monotonic() > deadline:
            raise BrokerError(
                f"the private Redis of this folder's last launcher still runs at {LOOPBACK}:{given['port']}; end the "
                f"process that `ps` shows with {path}, then start again"
            )
        time.sleep(0.1)


def configuration(folder: Path, port: int, password: str, addresses: tuple[str, ...] = (LOOPBACK,)) -> str:
    """Return the text of redis.conf, to be encoded as names of files are.

    All its settings are known to Redis 6.2 and later and to Valkey.
    """
    quoted = str(folder.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(
        (
            f"bind {' '.join(addresses)}",
            "protected-mode yes",
            f"port {port}",
            f"requirepass {password}",
            f'dir "{quoted}"',
            "daemonize no",
            'logfile ""',
            'save ""',
            "appendonly yes",
            "appendfsync everysec",
            "no-appendfsync-on-rewrite yes",
            "",
        )
    )


def _line(binary: Path, file: Path) -> list[str | Path]:
    """Return the command line of a server that reads `file`, which must not be taken for a pattern of names.

    Redis 7 and Valkey expand a path with one of PATTERN. If nothing matches, they serve on port 6379 without password.
    """
    if not PATTERN & {*str(file.resolve())}:  # they make the path absolute first
        return [binary, file]
    return ["/bin/sh", "-c", 'exec "$0" - < "$1"', binary, file]


def _state(url: str) -> str:
    """Return UP, LOADING, or AWAY for anything else."""
    try:
        check_redis(url, timeout=2.0)
    except BrokerError as error:
        return LOADING if "still loading" in str(error) else AWAY
    return UP


def _is_ours(url: str) -> bool:
    """Return whether the server at `url` accepts its password and answers."""
    try:
        check_redis(url, timeout=CHECK_TIMEOUT)
    except BrokerError as error:
        return not any(said in str(error) for said in ("password", "is down", "speak"))
    return True
