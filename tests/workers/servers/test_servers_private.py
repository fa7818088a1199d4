"""Tests of private servers: each run has its own, nobody else reaches them, and they end with the run in any case."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kombu
import psutil
import pytest
import redis
from support.brokers import lacking
from support.own_processes import descendants, living, servers_of
from support.waiting import until

from warren.errors import BrokerError, ConfigurationError
from workers.servers import Machine, Servers, acquire, check_broker, check_redis, private_redis
from workers.servers import process as children
from workers.servers.ports import free_port
from workers.servers.private_rabbitmq import PrivateRabbitMQ
from workers.servers.private_redis import PrivateRedis

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def servers(private_servers: Servers) -> Servers:
    """Return private servers, whichever servers the rest of the session uses."""
    return private_servers


def of_each(processes: list[psutil.Process], ask: Callable[[psutil.Process], Any]) -> list[Any]:
    """Return `ask` of each process that has not ended meanwhile: RabbitMQ runs short programs, such as df."""
    answers = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            answers.append(ask(process))
    return answers


# --- addresses, secrets, data ---


def test_private_servers_listen_on_loopback_alone(servers: Servers) -> None:
    listening = [
        connection.laddr.ip
        for connections in of_each(servers_of(servers), lambda process: process.net_connections("tcp"))
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4  # AMQP, Erlang distribution, epmd, Redis
    assert set(listening) <= {"127.0.0.1", "::1"}


def test_no_password_is_on_a_command_line_or_in_a_file_of_others(servers: Servers) -> None:
    passwords = {urlsplit(url).password or "" for url in (servers.broker_url, servers.redis_url)}
    assert all(len(password) >= 32 for password in passwords) and len(passwords) == 2
    for process in psutil.process_iter(["cmdline"]):
        assert not any(password in " ".join(process.info["cmdline"] or []) for password in passwords)
    for folder, _, names in os.walk(servers.folder):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(FileNotFoundError):  # the servers remove files of theirs at any time
                if path.is_file() and any(password.encode() in path.read_bytes() for password in passwords):
                    assert path.stat().st_mode & 0o077 == 0, path
    assert (servers.folder / "servers").stat().st_mode & 0o077 == 0


def test_a_terminals_ctrl_c_does_not_reach_private_servers(servers: Servers) -> None:
    sessions = of_each(servers_of(servers), lambda process: os.getsid(process.pid))
    assert len(sessions) >= 6  # three guards and three servers at least
    assert os.getsid(0) not in sessions


def test_the_broker_does_not_burn_a_core_while_it_idles(servers: Servers) -> None:
    lines = of_each(servers_of(servers), lambda process: process.cmdline() if "beam" in process.name() else [])
    line = next(line for line in lines if line)
    for flag in ("-sbwt", "-sbwtdcpu", "-sbwtdio"):
        last = max(index for index, word in enumerate(line) if word == flag)
        assert line[last + 1] == "none"


def test_a_durable_redis_remembers_and_another_does_not(tmp_path: Path) -> None:
    for durable, kept in ((True, b"7"), (False, None)):
        folder = tmp_path / str(durable)
        with (
            acquire("embedded", folder=folder, durable=durable) as found,
            redis.Redis.from_url(found.redis_url) as client,
        ):
            client.set("payoff", 7)
        with (
            acquire("embedded", folder=folder, durable=durable) as found,
            redis.Redis.from_url(found.redis_url) as client,
        ):
            assert client.get("payoff") == kept


def test_data_that_is_saved_nowhere_else_stays_for_the_next_servers(tmp_path: Path) -> None:
    state = {"unsaved": True}

    def held() -> tuple[bytes | None, bytes | None]:
        given = {"folder": tmp_path, "unsaved": lambda: state["unsaved"]}
        with acquire("embedded", **given) as found, redis.Redis.from_url(found.redis_url) as client:
            with redis.Redis.from_url(found.broker_url) as broker:
                before = client.get("payoff"), broker.get("a queue")
                broker.set("a queue", 1)
            client.set("payoff", 7)
            return before

    assert held() == (None, None)
    assert held() == (b"7", None), "queues of a run that is gone are not kept"
    with pytest.raises(ConfigurationError, match="left data that is not saved elsewhere: go on with broker=private"):
        acquire("external", "redis://127.0.0.1:1/0", folder=tmp_path, unsaved=lambda: True)
    state["unsaved"] = False
    assert held() == (None, None)
    assert not (tmp_path / "servers" / "redis" / "appendonlydir").exists()


def test_data_that_redis_cannot_read_is_set_aside_and_reported(tmp_path: Path) -> None:
    given = {"folder": tmp_path, "durable": True}
    with acquire("embedded", **given) as found, redis.Redis.from_url(found.redis_url) as client:
        client.set("payoff", 7)
    home = tmp_path / "servers" / "redis"
    (file,) = (home / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(b"what a failing disk has made of it" + file.read_bytes())
    with acquire("embedded", **given) as found, redis.Redis.from_url(found.redis_url) as client:
        assert client.get("payoff") is None
        (aside,) = home.glob("damaged-*")
        assert f"empty, since what the last one left is damaged; that is in {aside}" in found.description
    assert (aside / "appendonlydir" / file.name).exists()


def test_a_redis_waits_for_the_last_one_in_its_folder_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = Machine().redis() or Machine().embedded_redis()
    assert binary is not None
    first = PrivateRedis.start(binary, tmp_path, durable=True)
    try:
        monkeypatch.setattr(private_redis, "GONE_WITHIN", 0.2)
        with pytest.raises(BrokerError, match=f"last launcher still runs at 127.0.0.1:{first.port}"):
            PrivateRedis.start(binary, tmp_path, durable=True)
    finally:
        first.stop()
    PrivateRedis.start(binary, tmp_path, durable=True).stop()


@pytest.mark.parametrize("way", ["redis", "embedded_redis"])
def test_a_redis_takes_no_folders_name_for_a_pattern(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = getattr(Machine(), way)()
    if binary is None:
        lacking("no such Redis is installed")
    place = tmp_path / "runs [a] *?"
    place.mkdir()
    monkeypatch.chdir(place)
    server = PrivateRedis.start(binary, Path("redis"))
    try:
        check_redis(server.url)
    finally:
        server.stop()


def test_a_redis_takes_a_folders_name_that_is_not_in_utf8(tmp_path: Path) -> None:
    binary = Machine().embedded_redis()
    assert binary is not None
    for _ in range(2):  # the second one reads what the first one wrote
        server = PrivateRedis.start(binary, tmp_path / "B\udcfccher", durable=True)
        server.stop()
    assert (tmp_path / "B\udcfccher" / "appendonlydir").is_dir()


# --- ports ---


def test_a_port_that_is_asked_for_and_taken_is_named_with_its_holder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}, asked for Redis, .*process {os.getpid()}"):
            acquire("embedded", folder=tmp_path, redis_port=port)


def test_a_port_that_is_asked_for_and_free_is_used(tmp_path: Path) -> None:
    port = free_port()
    with acquire("embedded", folder=tmp_path, redis_port=port) as found:
        assert urlsplit(found.redis_url).port == port


def lose_first_port(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Make `port` the first free port that is picked, as if another process had taken it since."""
    real, picks = children.free_port, iter([port])
    monkeypatch.setattr(children, "free_port", lambda: next(picks, None) or real())


def test_a_redis_port_lost_to_another_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        lose_first_port(monkeypatch, port)
        with acquire("embedded", folder=tmp_path) as found:
            assert urlsplit(found.redis_url).port != port
            found.check()


@pytest.mark.slow
def test_two_brokers_run_at_once_though_one_lost_its_port_to_the_other(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = urlsplit(servers.broker_url).port or 0
    lose_first_port(monkeypatch, taken)
    binaries = Machine().rabbitmq()
    assert binaries is not None
    second = PrivateRabbitMQ.start(binaries, tmp_path / "second")
    try:
        assert second.port != taken
        assert second.url != servers.broker_url
        check_broker(servers.broker_url)
        check_broker(second.url)
        with kombu.Connection(second.url) as connection:  # a node apart, not a member of the first
            connection.SimpleQueue("only-here").put("x")
        with kombu.Connection(servers.broker_url) as connection, pytest.raises(Exception, match="NOT_FOUND"):
            connection.default_channel.queue_declare("only-here", passive=True)

        # The guard itself is killed: the node must not outlive it.
        if sys.platform == "linux":
            node = descendants(second.server._guard.pid)
            assert any("beam" in process.name() for process in node)
            os.kill(second.server._guard.pid, signal.SIGKILL)
            until(lambda: not living(node))
    finally:
        for child in second.children:
            child.stop()


# --- other users ---


# Other users may be unable to read root's interpreter: this process imports all that it needs before it becomes
# another user (a login imports all of it), and its guards run under any interpreter that the other user can run.
AS_NOBODY = """
import os, pwd, shutil, sys
from pathlib import Path
from workers import servers
servers.check(os.environ.pop("WARREN_BROKER_URL"), os.environ.pop("WARREN_REDIS_URL"))
nobody = pwd.getpwnam("nobody")
os.setgroups([]), os.setgid(nobody.pw_gid), os.setuid(nobody.pw_uid)
if not os.access(sys.executable, os.X_OK):
    sys.executable = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if sys.executable is None:
        sys.exit(77)
with servers.acquire("private", folder=Path(sys.argv[1])) as found:
    found.check()
    print(Path(sys.argv[1], "servers", "rabbitmq", "data").stat().st_uid)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; and this is one")
def test_an_ordinary_user_can_have_private_servers(servers: Servers) -> None:
    """RabbitMQ's packaged wrapper refuses ordinary users; the session's servers show that root can have some."""
    nobody = pwd.getpwnam("nobody")
    folder = Path(tempfile.mkdtemp(prefix="warren-nobody-"))
    try:
        shutil.chown(folder, nobody.pw_uid, nobody.pw_gid)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(folder)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | servers.environment(),
        )
        if done.returncode == 77:
            pytest.skip("no interpreter that an ordinary user can run")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == str(nobody.pw_uid)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_open_servers_listen_at_the_given_address_with_the_given_password(servers: Servers, tmp_path: Path) -> None:
    broker_port, redis_port, said, password = free_port(), free_port(), list[str](), "a-password-of-the-user"
    with acquire(
        "private", folder=tmp_path, broker_port=broker_port, redis_port=redis_port, say=said.append,
        listen="127.0.0.2", environment={"WARREN_PASSWORD": password},
    ):  # fmt: skip
        check_broker(f"amqp://warren:{password}@127.0.0.2:{broker_port}/%2F")
        check_redis(f"redis://:{password}@127.0.0.2:{redis_port}/0")
        for port in (broker_port, redis_port):
            found = [c for c in psutil.net_connections("tcp4") if c.status == "LISTEN" and c.laddr.port == port]
            assert {c.laddr.ip for c in found} == {"127.0.0.1", "127.0.0.2"}
    assert f"amqp://warren:$WARREN_PASSWORD@THIS_HOST:{broker_port}/%2F" in said[-1]
    assert password not in "".join(said)


@pytest.mark.parametrize(
    ("listen", "mode", "password", "expected"),
    [
        ("0.0.0.0", "private", "", "WARREN_PASSWORD in the environment has to hold a password"),
        ("0.0.0.0", "private", "short", "at least 16"),
        ("everywhere", "private", "a-password-of-the-user", "is not an address"),
        ("0.0.0.0", "auto", "a-password-of-the-user", "use broker=private"),
    ],
)
def test_servers_are_not_opened_with_wrong_settings(
    tmp_path: Path, listen: str, mode: str, password: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        acquire(mode, folder=tmp_path, listen=listen, environment={"WARREN_PASSWORD": password})
