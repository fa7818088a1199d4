"""Checks that a broker and a Redis answer, by their own handshakes, with one clear error per cause of failure.

No message holds a password: every URL goes through `redact` first.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
from urllib.parse import parse_qsl, unquote, urlsplit

import amqp
import kombu
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

import tasks.brokers.tls  # noqa: F401  amqps:// is opened as written there
from warren import redis_client
from warren.errors import BrokerError, ConfigurationError, ServerAway

CHECK_TIMEOUT = 5.0  # seconds, for each of connecting and handshaking
REDIS_SCHEMES = ("redis", "rediss", "redis+socket", "unix")
AMQP_SCHEMES = ("amqp", "amqps", "pyamqp")


def redact(url: str) -> str:
    """Replace passwords and secret options in `url` (or in several, separated by ";") by "***"."""
    # Greedy to the last "@": a password may hold an unescaped one, and hiding too much is the safe mistake.
    shown = re.sub(r"((?:^|;|://)[^:/@;\s]*):(?!//)[^;\s]*@", r"\1:***@", url)
    return re.sub(r"([?&][^=&;\s]*(?:pass|secret|token)[^=&;\s]*=)[^&;\s]*", r"\1***", shown, flags=re.IGNORECASE)


def kind_of(broker_url: str) -> str:
    """Return "rabbitmq" or "redis" for the URL's scheme. Raises ConfigurationError for any other."""
    scheme = broker_url.partition("://")[0].lower()
    if scheme in AMQP_SCHEMES:
        return "rabbitmq"
    if scheme in REDIS_SCHEMES:
        return "redis"
    raise ConfigurationError(
        f"broker URL {redact(broker_url)!r} has an unknown scheme; known: {', '.join((*AMQP_SCHEMES, *REDIS_SCHEMES))}"
    )


def check(broker_url: str, redis_url: str) -> None:
    """Log in to both. Raises BrokerError or ConfigurationError with the one cause (see the two functions below)."""
    check_broker(broker_url)
    check_redis(redis_url)


def check_broker(url: str, *, timeout: float = CHECK_TIMEOUT) -> str:
    """Log in to the broker at `url` and out again; return its name and version ("RabbitMQ 3.10.8").

    Of the nodes of a cluster (";" between their URLs) one must answer, as clients take the next when one is away; the
    text holds the errors of the others. Raises BrokerError, one message for each cause: nobody listens, the host is
    unknown, no answer in `timeout` seconds, the password is refused, the virtual host is missing or closed to the user.
    """
    if kind_of(url) == "redis":
        return check_redis(url, timeout=timeout)
    answers, errors = [], []
    for one in url.split(";"):
        try:
            answers.append(_check_amqp(one, timeout))
        except BrokerError as error:
            errors.append(error)
    if not answers:
        raise errors[0] if len(errors) == 1 else BrokerError("\n".join(map(str, errors)))
    return "; ".join([*answers, *map(str, errors)])


def answering(url: str) -> str:
    """Return the first of several nodes' URLs (";" between them) whose broker answers, or else the first."""
    first, *others = urls = url.split(";")
    for one in urls if others else ():
        with contextlib.suppress(BrokerError):
            check_broker(one)
            return one
    return first


def _check_amqp(url: str, timeout: float) -> str:
    shown = redact(url)
    _check_files(url)
    try:
        connection = kombu.Connection(url, connect_timeout=timeout)
        user, vhost = connection.userid or "guest", connection.virtual_host or "/"
        host = connection.hostname or "localhost"
    except ValueError as error:  # e.g. a port that is not a number; its text may quote the URL, so it is left out
        raise ConfigurationError(f"broker URL {shown!r} cannot be read as a URL ({type(error).__name__})") from None
    try:
        # By the transport itself: kombu's connect() would retry for seconds before it raises.
        link = connection.transport.establish_connection()
    except amqp.AccessRefused:
        raise BrokerError(
            f"broker {shown} refuses the password of user {user!r}; correct the URL, or create the user with "
            f"`rabbitmqctl add_user {user}` (RabbitMQ admits guest from its own machine only)"
        ) from None
    except amqp.NotAllowed as error:
        if "not found" in str(error):
            remedy = f"has no virtual host {vhost!r}; create it with `rabbitmqctl add_vhost {vhost}`"
        else:
            remedy = (
                f"closes virtual host {vhost!r} to user {user!r}; "
                f"open it with `rabbitmqctl set_permissions -p {vhost} {user} '.*' '.*' '.*'`"
            )
        raise BrokerError(f"broker {shown} {remedy}") from None
    except (amqp.AMQPError, OSError) as error:
        raise _unreachable(f"broker {shown}", error, host, timeout, "a RabbitMQ") from None
    try:
        about = link.server_properties
        return f"{about.get('product', 'AMQP broker')} {about.get('version', '')}".strip()
    finally:
        with contextlib.suppress(amqp.AMQPError, OSError):
            link.close()


def check_redis(url: str, *, timeout: float = CHECK_TIMEOUT) -> str:
    """PING the Redis at `url`; return its name and version ("Redis 7.0.15", "Valkey 9.1.2").

    Raises BrokerError, one message for each cause: nobody listens, the host is unknown, no answer in `timeout`
    seconds, a password is missing or refused.
    """
    shown = redact(url)
    _check_files(url)
    try:
        client = redis_client.connect(
            url, socket_connect_timeout=timeout, socket_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )
    except ValueError as error:
        raise ConfigurationError(f"Redis URL {shown!r} cannot be read as a URL ({type(error).__name__})") from None
    try:
        client.ping()
        about = client.info("server")
    except redis.AuthenticationError as error:
        if "NOAUTH" in str(error) or "without any password" in str(error) or not _has_password(url):
            remedy = "asks for a password, and the URL has none; write it as redis://:PASSWORD@HOST:PORT/0"
        else:
            remedy = "refuses the password in the URL; correct the URL"
        raise BrokerError(f"Redis {shown} {remedy}") from None
    except redis.BusyLoadingError:
        raise ServerAway(f"Redis {shown} is still loading its data; try again when it has") from None
    except redis.ResponseError as error:  # its message does not hold the URL's password
        raise BrokerError(f"Redis {shown} refuses: {error}; correct the URL or its configuration") from None
    except (redis.RedisError, OSError, ValueError) as error:
        host = urlsplit(url).hostname or urlsplit(url).path
        raise _unreachable(f"Redis {shown}", error, host, timeout, "a Redis") from None
    finally:
        client.close()
    if about.get("server_name") == "valkey":
        return f"Valkey {about.get('valkey_version', '')}".strip()
    return f"Redis {about.get('redis_version', '')}".strip()


def _check_files(url: str) -> None:
    """Raise ConfigurationError for a file of certificates or keys that the URL names and that cannot be read."""
    for name, path in parse_qsl(url.partition("?")[2]):
        if name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile") and not os.access(path, os.R_OK):
            raise ConfigurationError(f"{name}: {path}, which the URL {redact(url)} names, cannot be read; correct it")


def _has_password(url: str) -> bool:
    return bool(unquote(urlsplit(url).password or ""))


def _unreachable(what: str, error: BaseException, host: str, timeout: float, server: str) -> BrokerError:
    """Return the error for a failed connection, with its remedy: a ServerAway if it may work later."""
    tls = "amqps://" in what or "rediss://" in what
    reason, passes = _network_reason(error, host, timeout, server, tls)
    return (ServerAway if passes else BrokerError)(f"{what} {reason}")


def _network_reason(error: BaseException, host: str, timeout: float, server: str, tls: bool) -> tuple[str, bool]:
    """Return the reason found in a chain of errors, and whether it may pass by itself; `tls`: the URL asks for TLS."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    if any(isinstance(one, MasterNotFoundError) for one in chain):
        found = "has no master: no sentinel that answers knows one by the service's name"
        return f"{found}; correct the URL or start them", True
    refused = any(isinstance(one, ssl.SSLError) for one in chain)
    if refused or (tls and any(isinstance(one, (ConnectionResetError, BrokenPipeError)) for one in chain)):
        return (
            f"does not agree on TLS ({error}); check the scheme and the certificates: the server's has to name the "
            "URL's host, and to be signed by the system's authorities or those of ?ssl_ca_certs=FILE; a "
            "server that asks for a client's takes those of ssl_certfile and ssl_keyfile"
        ), not refused
    if any(isinstance(one, socket.gaierror) for one in chain):
        return f"names a host that is unknown: {host!r}; correct the URL or the name service", True
    if any(isinstance(one, ConnectionRefusedError) for one in chain):
        return "is down: nothing listens there; start it, or leave its URL out and let broker=auto choose", True
    if any(isinstance(one, (TimeoutError, redis.TimeoutError)) for one in chain):
        return f"gave no answer in {timeout:g} s; is a firewall between, or another kind of server there?", True
    if told := next((one.strerror for one in chain if isinstance(one, OSError) and one.strerror), None):
        return f"cannot be reached: {told}; correct the URL or the network", True
    return f"does not speak like {server} ({type(error).__name__}: {error}); is another kind of server there?", False
