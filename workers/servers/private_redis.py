"""A Redis of one's own: loopback only, a free port, a random password, its files under the run's folder."""

from __future__ import annotations

import contextlib
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
from workers.servers.process import LOOPBACK, Child, Starting, listens, private_folder, write_secret

READY_TIMEOUT = 30.0  # seconds until it answers; it takes a tenth of one
LOADING_TIMEOUT = 900.0  # seconds until it has read an append-only file back; some 10 take a GB
GRACE = 5.0  # seconds between SIGTERM and SIGKILL; it writes its append-only file meanwhile
GONE_WITHIN = GRACE + 10.0  # seconds in which a server ends whose launcher was killed
UP, LOADING, AWAY = "up", "loading", "away"
# As Redis says of an append-only file that it cannot read: cut off at its end it can.
DAMAGED = re.compile(r"append[- ]only file|AOF|RDB format|wrong signature", re.IGNORECASE)
DATA = ("appendonlydir", "appendonly.aof")  # the latter of Redis 6


class PrivateRedis:
    """A redis-server (or valkey-server) that was begun, and runs once it is ready.

    `url` holds its password, which is on no command line.
    """

    version = "Redis"  # as it calls itself, once it is ready
    note = ""  # about data that it did not begin with

    def __init__(self, child: Child, folder: Path, port: int, password: str) -> None:
        self.child, self.folder, self.port = child, folder, port
        self._password = password

    def wait_until_ready(self) -> None:
        """Return once it answers a PING. Raises BrokerError, with its last lines.

        Data of an earlier server that it cannot read is set aside: it begins empty then, and says so in `note`.
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
        """Stop it."""
        self.child.stop()

    @property
    def url(self) -> str:
        """URL of database 0."""
        return self.database(0)

    def database(self, number: int) -> str:
        """URL of one of the 16 numbered databases; with the user name, without which redis-cli 7 is refused."""
        return f"redis://default:{self._password}@{LOOPBACK}:{self.port}/{number}"

    def empty(self, number: int) -> None:
        """Remove all that one of the databases holds."""
        with redis_client.connect(self.database(number)) as client:
            client.flushdb()

    @classmethod
    def start(cls, binary: Path, folder: Path, **given: Any) -> PrivateRedis:
        """`begin`, and wait until it is ready. Raises BrokerError, with its last lines, when it is not."""
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
        """Begin `binary`.

        Every write goes to an append-only file, so that a server that was killed comes back with what it held (see
        `Child.start_again`). `durable`: what an earlier server in the same `folder` held is kept as well, one whose
        launcher was killed a moment ago included; without it this one begins empty. `open_at`: where others may come
        in.

        Raises ConfigurationError when the `port` asked for is taken, BrokerError when the earlier server runs on.
        """
        private_folder(folder)
        if durable:
            wait_for_the_last(folder)
        else:
            forget(folder)
        password = secrets.token_hex(24) if open_at is None else open_at.password
        addresses = (LOOPBACK,) if open_at is None else open_at.addresses

        def attempt(at: int) -> PrivateRedis:
            write_secret(folder / "redis.conf", configuration(folder, at, password, addresses))
            child = Child("private Redis", [binary, folder / "redis.conf"], folder / "redis.log", grace=GRACE)
            return cls(child, folder, at, password)

        return Starting(attempt, port, "Redis")


def holds_data(folder: Path) -> bool:
    """Return True where a server in `folder` has left its data."""
    return any((folder / name).exists() for name in DATA)


def forget(folder: Path) -> None:
    """Remove what a server in `folder` held; its logs stay."""
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)


def set_aside(folder: Path) -> Path:
    """Move what a server in `folder` held out of the way of the next; where it is now."""
    aside = folder / f"damaged-{time.time_ns() // 1_000_000}"
    aside.mkdir()
    for name in DATA:
        if (folder / name).exists():
            (folder / name).rename(aside / name)
    return aside


def wait_for_the_last(folder: Path) -> None:
    """Return once the server that ran in `folder` before has ended: two would write the same append-only file."""
    path = folder / "redis.conf"
    given = dict(line.split(" ", 1) for line in path.read_text().splitlines() if " " in line) if path.exists() else {}
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
    """The whole redis.conf; every name in it is known to Redis 6.2 and later and to Valkey."""
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


def _state(url: str) -> str:
    """UP, LOADING, or AWAY for anything else."""
    try:
        check_redis(url, timeout=2.0)
    except BrokerError as error:
        return LOADING if "still loading" in str(error) else AWAY
    return UP


def _is_ours(url: str) -> bool:
    """Return True unless the server that listens there refuses this password or says nothing."""
    try:
        check_redis(url, timeout=CHECK_TIMEOUT)
    except BrokerError as error:
        return not any(said in str(error) for said in ("password", "is down", "speak"))
    return True
