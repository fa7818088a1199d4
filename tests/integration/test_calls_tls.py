"""Calls over TLS to a real RabbitMQ: several threads on one connection, and a certificate that is checked."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from support import brokers
from support.calling import Calling
from support.certificates import self_signed

from tasks.app import create_app
from tasks.topology import Topology
from warren.errors import BrokerError, ConfigurationError
from workers.servers import Servers, check_broker
from workers.servers.process import LOOPBACK, free_port

# As the configuration's listeners.ssl and ssl_options do; at run time, so that no RabbitMQ has to be started for it.
LISTEN = """
application:set_env(rabbit, ssl_options, [{{cacertfile, "{crt}"}}, {{certfile, "{crt}"}}, {{keyfile, "{key}"}},
  {{verify, verify_none}}]),
rabbit_networking:start_ssl_listener({{"{host}", {port}, inet}}, rabbit_networking:ensure_ssl(), 2).
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's, for 127.0.0.1; its key is beside it."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_url(private_servers: Servers, certificate: Path) -> str:
    """The private RabbitMQ at a port that takes nothing but TLS; without a certificate to check it by."""
    port = free_port()
    words = LISTEN.format(crt=certificate, key=certificate.with_suffix(".key"), host=LOOPBACK, port=port)
    node = brokers.node(private_servers)
    assert node is not None
    done = node.control(["--quiet", "eval", words], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "error" not in done.stdout, done.stdout + done.stderr
    parts = urlsplit(private_servers.broker_url)
    return f"amqps://{parts.username}:{parts.password}@{LOOPBACK}:{port}{parts.path}"


@pytest.fixture
def calling(tls_url: str, certificate: Path, private_servers: Servers, tmp_path: Path) -> Iterator[Calling]:
    url = f"{tls_url}?ssl_ca_certs={quote(str(certificate))}"
    found = Calling(url, private_servers.redis_url, f"tls-{secrets.token_hex(4)}", tmp_path)
    yield found
    found.close()


def test_calls_of_many_threads_are_answered_over_one_tls_connection(calling: Calling) -> None:
    calling.start()
    long, wrong = "x" * 600_000, list[str]()

    def call(number: int) -> None:
        for turn in range(40):
            if calling.solver.call("actor.add", number, turn) != number + turn:
                wrong.append(f"{number} + {turn}")

    handles = [calling.solver.send("actor.add", long, str(number)) for number in range(8)]
    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    readers = [threading.Thread(target=handle.result) for handle in handles]  # of this thread's connection
    for thread in (*threads, *readers):
        thread.start()
    for thread in (*threads, *readers):
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in (*threads, *readers))
    assert [handle.result() for handle in handles] == [long + str(number) for number in range(8)]


def test_the_brokers_certificate_is_checked_where_the_url_asks_for_it(
    tls_url: str, certificate: Path, private_servers: Servers, tmp_path: Path
) -> None:
    trusting = f"?ssl_ca_certs={quote(str(certificate))}"
    assert check_broker(tls_url + trusting).startswith("RabbitMQ")
    assert check_broker(f"{tls_url}?ssl_cert_reqs=none").startswith("RabbitMQ")
    another = quote(str(self_signed(tmp_path)))
    for refused in ("", f"?ssl_ca_certs={another}", f"{trusting}&ssl_server_hostname=box-2"):
        with pytest.raises(BrokerError, match=r"does not agree on TLS .*certificate verify failed"):
            check_broker(tls_url + refused)
    app = create_app(Topology("tls"), tls_url + trusting, private_servers.redis_url)
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1)


def test_an_option_of_the_url_that_does_not_exist_is_named(tls_url: str) -> None:
    with pytest.raises(ConfigurationError, match="'ssl_ca_cert' does not exist; did you mean ssl_ca_certs"):
        check_broker(f"{tls_url}?ssl_ca_cert=x")
