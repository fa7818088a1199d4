"""Clients of Redis from a URL, in every form that Warren takes. Every package makes its clients here.

redis://[user:password@]host:port/db
rediss://[user:password@]host:port/db?ssl_ca_certs=ca.pem
    over TLS: the certificate has to name the host and be signed by the system's authorities, or those in the file.
    Also ssl_certfile and ssl_keyfile (of the client), ssl_check_hostname=false, ssl_cert_reqs=none
unix:///path?db=0                                     or, as Celery writes it, redis+socket:///path?virtual_host=0
sentinel://[user:password@]host:port,host:port/SERVICE/db
    the master that sentinels at these addresses know as SERVICE: when another takes over, clients follow it. User and
    password are Redis's; the sentinels' own go behind it: ?sentinel_username=...&sentinel_password=...
"""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from warren.errors import ConfigurationError, unknown_name

SENTINEL_PORT = 26379
SENTINEL_ANSWERS = 2.0  # s; a sentinel that takes longer is skipped
CONNECTS_WITHIN = 5.0  # s; a machine that is gone does not refuse connections, it is silent
FORM = "sentinel://[user:password@]host:port,host:port/SERVICE/db"
SCHEMES = ("sentinel://", "redis+sentinel://")

TLS = "rediss://"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")

_URL = re.compile(
    r"(?:redis\+)?sentinel://(?:(?P<user>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<hosts>[^/?@]+)/(?P<service>[\w.-]+)(?:/(?P<db>\d*))?(?:\?(?P<query>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[^]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?")


@dataclass(frozen=True)
class SentinelURL:
    """The parts of a URL of sentinels."""

    hosts: tuple[tuple[str, int], ...]
    service: str
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    own: dict[str, str] = field(default_factory=dict, repr=False)  # username and password of the sentinels

    @classmethod
    def read(cls, url: str) -> SentinelURL:
        """Parse `url`. Raises ConfigurationError, with no password in it, for any other form."""
        match = _URL.fullmatch(url)
        hosts = [_HOST.fullmatch(one.strip()) for one in re.split("[,;]", match["hosts"])] if match else []
        if match is None or None in hosts:
            raise ConfigurationError(f"the Redis URL of sentinels cannot be read; write it as {FORM}")
        options = dict(parse_qsl(match["query"] or "", keep_blank_values=True))
        if unknown := sorted(options.keys() - {"sentinel_username", "sentinel_password"}):
            raise ConfigurationError(
                f"the Redis URL of sentinels has unknown options: {', '.join(unknown)}; "
                "known: sentinel_username, sentinel_password"
            )
        return cls(
            tuple((one["name"].strip("[]"), int(one["port"] or SENTINEL_PORT)) for one in hosts if one),
            match["service"],
            int(match["db"] or 0),
            unquote(match["user"] or "") or None,
            unquote(match["password"] or "") or None,
            {name.removeprefix("sentinel_"): value for name, value in options.items()},
        )

    def __str__(self) -> str:
        """Return the URL without secrets."""
        hosts = ",".join(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in self.hosts)
        return f"sentinel://{hosts}/{self.service}/{self.db}"


class Patience(Retry):
    """A retry policy that waits for a Redis that restarts; after `hurry`, only until a deadline.

    All connections that are made with it share it.
    """

    def __init__(self, tries: int) -> None:
        """Retry `tries` times, after pauses that grow from 0.1 s to 1 s."""
        super().__init__(ExponentialBackoff(cap=1.0, base=0.1), tries)
        self._until, self._away = math.inf, False

    __hash__ = Retry.__hash__

    def __deepcopy__(self, memo: Any) -> Patience:
        return self  # redis-py gives each connection a copy

    def hurry(self, seconds: float) -> None:
        """Wait for Redis for at most `seconds` more in all, as this process is to end. Idempotent; thread-safe."""
        self._until = min(self._until, time.monotonic() + seconds)

    def call_with_retry(self, do: Callable[[], Any], fail: Callable[..., Any], *more: Any, **named: Any) -> Any:
        """Call `do` with retries, as redis-py. Raises redis.ConnectionError at once after the deadline of `hurry`."""
        if self._away:
            raise redis.ConnectionError("Redis is away, and this process ends without it")

        def failed(error: Exception, *count: int) -> None:
            fail(error, *count)
            if time.monotonic() > self._until:
                self._away = True
                raise error

        return super().call_with_retry(do, failed, *more, **named)


def connect(url: str, **options: Any) -> redis.Redis:
    """Return a client of the Redis at `url`, which connects when it is first used; `options` are redis-py's.

    Raises ConfigurationError or ValueError for a URL that cannot be read.
    """
    if url.startswith(SCHEMES):
        return _by_sentinel(url, options, master=True)
    return redis.Redis.from_url(_plain(url), **options)


def connect_to_replica(url: str, **options: Any) -> redis.Redis | None:
    """Return a client that reads from replicas in turn, or from the master if there are none; None without sentinels.

    A replica lags behind: what was just written may be missing from it.
    """
    return _by_sentinel(url, options, master=False) if url.startswith(SCHEMES) else None


def host_of(client: redis.Redis) -> str:
    """Return the name or address of the machine of a client's Redis. Raises redis.ConnectionError without a master."""
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return str(pool.get_master_address()[0])  # type: ignore[no-untyped-call]
    return str(pool.connection_kwargs.get("host", "127.0.0.1"))


def _by_sentinel(url: str, options: dict[str, Any], master: bool) -> redis.Redis:
    where = SentinelURL.read(url)
    bounds = {"socket_timeout": SENTINEL_ANSWERS, "socket_connect_timeout": SENTINEL_ANSWERS}
    once = Retry(NoBackoff(), 0)  # the next sentinel is asked instead
    sentinels: Any = Sentinel(where.hosts, sentinel_kwargs={**where.own, **bounds, "retry": once})  # type: ignore[no-untyped-call]
    credentials = {"username": where.username, "password": where.password, "db": where.db}
    given: dict[str, Any] = {"socket_connect_timeout": CONNECTS_WITHIN, **_noticing(), **credentials, **options}
    given["connection_class"] = _Following
    found = sentinels.master_for(where.service, **given) if master else sentinels.slave_for(where.service, **given)
    assert isinstance(found, redis.Redis)
    return found


class _Following(SentinelManagedConnection):
    """A connection that asks the sentinels before each retry; redis-py's would try the master that is gone."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self.is_connected:
            self.connect()  # type: ignore[no-untyped-call]
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


def _noticing() -> dict[str, Any]:
    """Return options by which a connection to a machine that is gone breaks within about 10 s instead of minutes.

    They do not limit the time of an answer: commands may block for longer.
    """
    wanted = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}  # s, s, -, ms
    known = {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
    return {"socket_keepalive": True, "socket_keepalive_options": known}


def complete(url: str) -> str:
    """Return a URL with what Celery asks for: over TLS, whether to check the server's certificate (by default, yes).

    Raises ConfigurationError for an option of TLS that does not exist.
    """
    if not url.startswith(TLS):
        return url
    options = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    wrong = [name for name in options if name.startswith("ssl_") and name not in TLS_OPTIONS]
    if wrong:
        raise ConfigurationError([unknown_name("option of the Redis URL", name, TLS_OPTIONS) for name in wrong])
    if "ssl_cert_reqs" in options:
        return url
    return f"{url}{'&' if options else '?'}ssl_cert_reqs=required"


def _plain(url: str) -> str:
    url = complete(url)
    if url.startswith("redis+socket://"):
        return url.replace("redis+socket://", "unix://", 1).replace("virtual_host=", "db=", 1)
    return url
