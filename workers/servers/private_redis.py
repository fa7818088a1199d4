"""A Redis of one's own: loopback only, a free port, a random password, its files under the run's folder."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Any

from warren.errors import BrokerError
from workers.servers.checks import check_redis
from workers.servers.exposure import OpenAddress
from workers.servers.process import LOOPBACK, Child, Starting, private_folder, write_secret

READY_TIMEOUT = 30.0  # seconds; it takes a tenth of one, longer when an append-only file is read back
GRACE = 5.0  # seconds between SIGTERM and SIGKILL; it writes its append-only file meanwhile


class PrivateRedis:
    """A redis-server (or valkey-server) that was begun, and runs once it is ready.

    `url` holds its password, which is on no command line.
    """

    version = "Redis"  # as it calls itself, once it is ready

    def __init__(self, child: Child, port: int, password: str) -> None:
        self.child, self.port = child, port
        self._password = password

    def wait_until_ready(self) -> None:
        """Return once it answers a PING. Raises BrokerError, with its last lines."""
        self.child.wait_until(lambda: _answers(self.url), READY_TIMEOUT)
        self.version = check_redis(self.url)

    def stop(self) -> None:
        """Stop it."""
        self.child.stop()

    @property
    def url(self) -> str:
        """URL of database 0."""
        return self.database(0)

    def database(self, number: int) -> str:
        """URL of one of the 16 numbered databases."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{number}"

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
        `Child.start_again`). `durable`: what an earlier server in the same `folder` held is kept as well; without it
        this one begins empty. `open_at`: where others may come in.

        Raises ConfigurationError when the `port` asked for is taken.
        """
        private_folder(folder)
        if not durable:
            forget(folder)
        password = secrets.token_hex(24) if open_at is None else open_at.password
        addresses = (LOOPBACK,) if open_at is None else open_at.addresses

        def attempt(at: int) -> PrivateRedis:
            write_secret(folder / "redis.conf", configuration(folder, at, password, addresses))
            child = Child("private Redis", [binary, folder / "redis.conf"], folder / "redis.log", grace=GRACE)
            return cls(child, at, password)

        return Starting(attempt, port, "Redis")


def forget(folder: Path) -> None:
    """Remove what a server in `folder` held; its logs stay."""
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    (folder / "appendonly.aof").unlink(missing_ok=True)  # Redis 6


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


def _answers(url: str) -> bool:
    try:
        check_redis(url, timeout=2.0)
    except BrokerError:
        return False
    return True
