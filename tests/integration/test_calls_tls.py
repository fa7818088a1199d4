"""Tests of calls over TLS to RabbitMQ and Redis: several threads on one connection, and checks of certificates."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
import redis
from support import brokers
from support.calling import Calling
from support.waiting import PATIENCE

from tasks.app import create_app
from tasks.topology import Topology
from warren import redis_client
from warren.errors import BrokerError, ConfigurationError
from workers.servers import Servers, certificates, check_broker, check_redis
from workers.servers.__main__ import main
from workers.servers.ports import LOOPBACK, free_port

# Does at run time what listeners.ssl and ssl_options do in the configuration, which would need another RabbitMQ.
LISTEN = """
application:set_env(rabbit, ssl_options, [{{cacertfile, "{ca}"}}, {{certfile, "{crt}"}}, {{keyfile, "{key}"}},
  {{verify, verify_peer}}, {{fail_if_no_peer_cert, false}}]),
rabbit_networking:start_ssl_listener({{"{host}", {port}, inet}}, rabbit_networking:ensure_ssl(), 2).
"""


def authority(folder: Path) -> Path:
    """Fill a folder with certificates of a new authority for 127.0.0.1; return it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes certificates, is not installed")
    certificates.make(folder, [LOOPBACK])
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the servers' certificates."""
    return authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_url(private_servers: Servers, folder: Path) -> str:
    """Return the URL of a TLS port of the private RabbitMQ, without an authority to check it by."""
    port = free_port()
    files = {"ca": folder / "ca.pem", "crt": folder / "server.pem", "key": folder / "server.key"}
    words = LISTEN.format(**files, host=LOOPBACK, port=port)
    node = brokers.node(private_servers)
    assert node is not None
    done = node.control(["--quiet", "eval", words], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0 and "error" not in done.stdout, done.stdout + done.stderr
    parts = urlsplit(private_servers.broker_url)
    return f"amqps://{parts.username}:{parts.password}@{LOOPBACK}:{port}{parts.path}"


@pytest.fixture(scope="module")
def redis_tls_url(private_servers: Servers, folder: Path) -> Iterator[str]:
    """Yield the URL of a TLS port of the private Redis that demands clients' certificates."""
    port = free_port()
    files = ("ca-cert-file", folder / "ca.pem", "cert-file", folder / "server.pem", "key-file", folder / "server.key")
    words = [f"tls-{word}" if isinstance(word, str) else str(word) for word in files]
    with redis_client.connect(private_servers.redis_url) as client:
        try:
            client.execute_command("CONFIG", "SET", *words, "tls-auth-clients", "yes", "tls-port", str(port))
        except redis.ResponseError as error:
            pytest.skip(f"this Redis has no TLS: {error}")
        parts = urlsplit(private_servers.redis_url)
        yield f"rediss://{parts.username}:{parts.password}@{LOOPBACK}:{port}{parts.path}"
        client.config_set("tls-port", 0)


def trusting(folder: Path, client: bool = False) -> str:
    """Return URL options that name the authority, and with `client` a client's certificate."""
    files = {"ssl_ca_certs": folder / "ca.pem"}
    if client:
        files |= {"ssl_certfile": folder / "client.pem", "ssl_keyfile": folder / "client.key"}
    return f"?{urlencode(files)}"


@pytest.fixture
def calling(tls_url: str, redis_tls_url: str, folder: Path, tmp_path: Path) -> Iterator[Calling]:
    urls = tls_url + trusting(folder), redis_tls_url + trusting(folder, client=True)
    found = Calling(*urls, f"tls-{secrets.token_hex(4)}", tmp_path)
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
    readers = [threading.Thread(target=handle.result) for handle in handles]  # the readers use this thread's connection
    for thread in (*threads, *readers):
        thread.start()
    for thread in (*threads, *readers):
        thread.join(PATIENCE)
    assert not wrong and not any(thread.is_alive() for thread in (*threads, *readers))
    assert [handle.result() for handle in handles] == [long + str(number) for number in range(8)]


def test_the_brokers_certificate_is_checked_by_the_urls_authority(
    tls_url: str, folder: Path, private_servers: Servers, tmp_path: Path
) -> None:
    known = trusting(folder)
    assert check_broker(tls_url + known).startswith("RabbitMQ")
    assert check_broker(f"{tls_url}?ssl_cert_reqs=none").startswith("RabbitMQ")
    another = trusting(authority(tmp_path))
    for refused in ("", another, f"{known}&ssl_server_hostname=box-2"):
        with pytest.raises(BrokerError, match=r"does not agree on TLS .*certificate verify failed") as told:
            check_broker(tls_url + refused)
        assert "\n" not in str(told.value)
    app = create_app(Topology("tls"), tls_url + known, private_servers.redis_url)
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1)


def test_the_certificate_of_redis_is_checked_by_the_urls_authority(
    redis_tls_url: str, folder: Path, tmp_path: Path
) -> None:
    known = trusting(folder, client=True)
    assert "." in check_redis(redis_tls_url + known)
    assert "." in check_redis(f"{redis_tls_url.replace(LOOPBACK, 'localhost')}{known}&ssl_check_hostname=false")
    another = known.replace(quote(str(folder / "ca.pem"), safe=""), quote(str(authority(tmp_path) / "ca.pem"), safe=""))
    refused = [redis_tls_url, redis_tls_url + another, redis_tls_url.replace(LOOPBACK, "localhost") + known]
    for url in refused:
        with pytest.raises(BrokerError, match=r"does not agree on TLS .*certificate verify failed") as told:
            check_redis(url)
        assert "\n" not in str(told.value)


def test_a_client_without_a_certificate_is_refused(redis_tls_url: str, folder: Path) -> None:
    with pytest.raises(BrokerError, match=r"does not agree on TLS .* those of ssl_certfile"):
        check_redis(redis_tls_url + trusting(folder))


def test_results_pass_over_tls(redis_tls_url: str, folder: Path, private_servers: Servers) -> None:
    url = redis_tls_url + trusting(folder, client=True)
    app = create_app(Topology("tls"), private_servers.broker_url, url)
    app.backend.store_result("1", 5, "SUCCESS")
    assert app.AsyncResult("1").get(timeout=PATIENCE) == 5
    for wrong in ("&ssl_check_hostname=false", ""):
        away = create_app(Topology("tls"), private_servers.broker_url, url.replace(LOOPBACK, "localhost") + wrong)
        assert away.backend.connparams.get("ssl_check_hostname", True) is (not wrong)


def test_the_command_makes_keys_for_their_owner_and_keeps_its_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = authority(tmp_path / "new")
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == dict.fromkeys(
        ["ca.key", "server.key", "client.key"], 0o600
    )
    before = {name: (folder / name).read_text() for name in ("ca.pem", "ca.key", "server.pem")}
    assert main(["certificates", str(folder), "rabbitmq", "10.0.0.7"]) == 0
    assert f"ssl_options.cacertfile = {folder}/ca.pem" in capsys.readouterr().out
    kept = {name for name, text in before.items() if (folder / name).read_text() == text}
    assert kept == {"ca.pem", "ca.key"}
    assert main(["certificates", str(folder), "a b"]) == 2
    assert "host: 'a b' is neither a name nor an address" in capsys.readouterr().err


def test_a_file_of_the_url_that_is_not_there_is_named(tls_url: str, redis_tls_url: str, tmp_path: Path) -> None:
    for check, url in ((check_broker, tls_url), (check_redis, redis_tls_url)):
        with pytest.raises(ConfigurationError, match=r"ssl_ca_certs: .*none.pem, .* cannot be read"):
            check(f"{url}?ssl_ca_certs={tmp_path}/none.pem")


def test_an_option_of_the_url_that_does_not_exist_is_named(tls_url: str, redis_tls_url: str) -> None:
    for check, url in ((check_broker, tls_url), (check_redis, redis_tls_url)):
        with pytest.raises(ConfigurationError, match="'ssl_ca_cert' does not exist; did you mean ssl_ca_certs"):
            check(f"{url}?ssl_ca_cert=x")
