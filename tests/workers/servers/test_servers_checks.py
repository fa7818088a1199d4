"""Tests of logins to servers: each way to fail is one clear error, and no message holds a password."""

from __future__ import annotations

import contextlib
import socket
import threading
import traceback
from collections.abc import Callable, Iterator

import pytest
from support import brokers
from support.waiting import PATIENCE

from warren.errors import BrokerError, ConfigurationError, WarrenError
from workers.servers import Servers, check, check_broker, check_redis, kind_of, redact
from workers.servers.ports import free_port

SECRET = "hunter2-very-secret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://user:hunter2@host:5672/vhost", "amqp://user:***@host:5672/vhost"),
        ("amqp://user:hun@ter/2@host//", "amqp://user:***@host//"),
        ("redis://:hunter2@host/0", "redis://:***@host/0"),
        ("amqp://a:hunter2@one//;amqp://b:hunter2@two//", "amqp://a:***@one//;amqp://b:***@two//"),
        ("amqps://user:hunter2@host//?ssl_key_password=hunter2", "amqps://user:***@host//?ssl_key_password=***"),
        ("user:hunter2@host", "user:***@host"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("unix:///run/redis.sock?db=1&password=hunter2", "unix:///run/redis.sock?db=1&password=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_the_kind_of_a_broker_is_its_scheme() -> None:
    assert [kind_of(url) for url in ("amqp://h", "amqps://h", "redis://h", "rediss://h")] == [
        "rabbitmq",
        "rabbitmq",
        "redis",
        "redis",
    ]
    with pytest.raises(ConfigurationError, match="unknown scheme") as caught:
        kind_of(f"kafka://user:{SECRET}@host")
    assert_secret_kept(caught.value)


def assert_secret_kept(error: BaseException) -> None:
    """Check that neither the message nor a printed traceback holds the password."""
    assert SECRET not in "".join(traceback.format_exception(error))


def fails(call: Callable[[], object], kind: type[WarrenError], *words: str) -> str:
    """Check that the call raises this kind of error, with these words and without the password; return the message."""
    with pytest.raises(kind) as caught:
        call()
    assert_secret_kept(caught.value)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def test_a_broker_or_redis_that_is_down_is_reported() -> None:
    port = free_port()
    fails(
        lambda: check_broker(f"amqp://u:{SECRET}@127.0.0.1:{port}//"), BrokerError, "is down", f"u:***@127.0.0.1:{port}"
    )
    fails(
        lambda: check_redis(f"redis://:{SECRET}@127.0.0.1:{port}/0"), BrokerError, "is down", f":***@127.0.0.1:{port}"
    )
    fails(lambda: check_redis("unix:///no/such/redis.sock"), BrokerError, "No such file")


def test_an_unknown_host_is_named() -> None:
    for call in (
        lambda: check_broker(f"amqp://u:{SECRET}@no-such-host.invalid//"),
        lambda: check_redis(f"redis://:{SECRET}@no-such-host.invalid/0"),
    ):
        fails(call, BrokerError, "host that is unknown", "no-such-host.invalid")


def test_a_url_that_cannot_be_read_is_a_configuration_error() -> None:
    fails(lambda: check_broker(f"amqp://u:{SECRET}@host:port//"), ConfigurationError, "cannot be read")
    fails(lambda: check_redis(f"redis://:{SECRET}@host:port/0"), ConfigurationError, "cannot be read")


def test_a_server_that_never_answers_is_given_up_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"u:{SECRET}@127.0.0.1:{silent.getsockname()[1]}"
        for call in (
            lambda: check_broker(f"amqp://{at}//", timeout=0.5),
            lambda: check_redis(f"redis://{at}/0", timeout=0.5),
        ):
            fails(call, BrokerError, "no answer in 0.5 s")


@pytest.fixture
def web_server() -> Iterator[int]:
    """Yield the port of a server that answers every connection in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.recv(1024)
                    link.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    link.shutdown(socket.SHUT_WR)
                    with contextlib.suppress(ConnectionError):
                        while link.recv(1024):  # what is left unread would reset the connection, and lose the reply
                            pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)


def test_another_kind_of_server_is_recognised_as_such(web_server: int) -> None:
    broker, redis = f"amqp://u:{SECRET}@127.0.0.1:{web_server}//", f"redis://:{SECRET}@127.0.0.1:{web_server}/0"
    fails(lambda: check_broker(broker, timeout=PATIENCE), BrokerError, "does not speak like")
    fails(lambda: check_redis(redis, timeout=PATIENCE), BrokerError, "does not speak like")


def test_a_refused_broker_password_is_reported_and_not_shown(servers: Servers) -> None:
    wrong = with_password(servers.broker_url, SECRET)
    fails(lambda: check_broker(wrong), BrokerError, "refuses the password of user 'warren", ":***@")


def test_a_missing_virtual_host_is_reported(servers: Servers) -> None:
    absent = servers.broker_url.replace("%2F", "no-such-vhost")
    message = fails(
        lambda: check_broker(absent), BrokerError, "no virtual host 'no-such-vhost'", "rabbitmqctl add_vhost"
    )
    assert servers.broker_url.split(":")[2].split("@")[0] not in message


def test_a_virtual_host_closed_to_the_user_is_reported(servers: Servers, run_name: str) -> None:
    brokers.control(servers, "add_vhost", run_name)
    try:
        closed = servers.broker_url.replace("%2F", run_name)
        fails(lambda: check_broker(closed), BrokerError, f"closes virtual host '{run_name}'", "set_permissions")
    finally:
        brokers.control(servers, "delete_vhost", run_name)


def test_a_missing_and_a_wrong_redis_password_are_told_apart(embedded: Servers) -> None:
    bare = "redis://" + embedded.redis_url.partition("@")[2]
    fails(lambda: check_redis(bare), BrokerError, "asks for a password", "redis://:PASSWORD@")
    fails(lambda: check_redis(with_password(embedded.redis_url, SECRET)), BrokerError, "refuses the password")


def test_a_missing_redis_database_is_reported_in_the_words_of_redis(embedded: Servers) -> None:
    fails(lambda: check_redis(embedded.redis_url[:-1] + "99"), BrokerError, "DB index is out of range")


def test_servers_that_answer_are_named(servers: Servers, embedded: Servers) -> None:
    check(servers.broker_url, servers.redis_url)
    assert check_broker(servers.broker_url).startswith("RabbitMQ ")
    assert check_redis(servers.redis_url).startswith(("Redis ", "Valkey "))
    assert check_broker(embedded.broker_url).startswith("Valkey ")


def with_password(url: str, password: str) -> str:
    """Return `url` with another password."""
    user, _, rest = url.partition("://")[2].partition(":")
    return f"{url.partition('://')[0]}://{user}:{password}@{rest.partition('@')[2]}"
