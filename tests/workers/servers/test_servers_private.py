"""Private servers: theirs alone, reachable by nobody else, and gone with the run however it ends."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import kombu
import psutil
import pytest
import redis

from warren.errors import BrokerError, ConfigurationError
from workers.servers import Machine, Servers, acquire, check_broker, check_redis, private_redis
from workers.servers import process as children
from workers.servers.private_rabbitmq import PrivateRabbitMQ
from workers.servers.private_redis import PrivateRedis
from workers.servers.process import Child, free_port

GONE_WITHIN = 25.0  # seconds; the grace times of the servers and room for a busy machine
ROOT = Path(__file__).resolve().parents[3]

# A launcher: acquires servers, says so with its processes' ids, and waits for whatever is done to it.
LAUNCHER = """
import os, sys, time
from pathlib import Path
from workers import servers
found = servers.acquire(sys.argv[1], folder=Path(sys.argv[2]), say=lambda line: None)
if sys.argv[3] == "fork" and os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="session")
def servers(private_servers: Servers) -> Servers:
    """What is tested here is how private servers run, whichever the rest of the session uses."""
    return private_servers


def eventually(condition: Callable[[], bool], within: float = GONE_WITHIN) -> bool:
    """Whether `condition` becomes true within so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; a zombie that nobody has reaped yet does not."""
    return [one for one in processes if one.is_running() and _status(one) != psutil.STATUS_ZOMBIE]


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]]]:
    """Start LAUNCHER; gives it and every process below it. Nothing of it is left after the test."""
    seen: list[psutil.Process] = []

    def call(mode: str, how: str = "alone") -> tuple[subprocess.Popen[str], list[psutil.Process]]:
        launcher = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, mode, str(tmp_path / "run"), how],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        seen.append(psutil.Process(launcher.pid))
        assert launcher.stdout is not None
        while (line := launcher.stdout.readline().strip()) != "ready":
            assert line, "the launcher ended early"
            seen.append(psutil.Process(int(line)))
        below = descendants(launcher.pid)
        seen.extend(below)
        return launcher, below

    yield call
    for process in living(seen):
        process.kill()


def servers_of(found: Servers) -> list[psutil.Process]:
    """Every process that was started for these servers."""
    return [process for process in descendants(os.getpid()) if _guards(process, found)]


def _guards(process: psutil.Process, found: Servers) -> bool:
    guards = {child._guard.pid for child in found.children}
    return bool(guards & {process.pid, *(parent.pid for parent in process.parents())})


# --- what they are ---


def test_private_servers_listen_on_loopback_alone(servers: Servers) -> None:
    listening = [
        connection.laddr.ip
        for process in servers_of(servers)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4  # AMQP, Erlang distribution, epmd, Redis
    assert set(listening) <= {"127.0.0.1", "::1"}


def test_no_password_is_on_a_command_line_or_in_a_file_of_others(servers: Servers) -> None:
    passwords = {urlsplit(url).password or "" for url in (servers.broker_url, servers.redis_url)}
    assert all(len(password) >= 32 for password in passwords) and len(passwords) == 2
    for process in psutil.process_iter(["cmdline"]):
        assert not any(password in " ".join(process.info["cmdline"] or []) for password in passwords)
    for path in servers.folder.rglob("*"):
        if path.is_file() and any(password.encode() in path.read_bytes() for password in passwords):
            assert path.stat().st_mode & 0o077 == 0, path
    assert (servers.folder / "servers").stat().st_mode & 0o077 == 0


def test_a_terminals_ctrl_c_does_not_reach_them(servers: Servers) -> None:
    processes = servers_of(servers)
    assert len(processes) >= 6  # three guards and three servers at least
    assert os.getsid(0) not in {os.getsid(process.pid) for process in processes}


def test_the_broker_does_not_burn_a_core_while_it_idles(servers: Servers) -> None:
    beam = next(process for process in servers_of(servers) if "beam" in process.name())
    line = beam.cmdline()
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
    """The first free port that is picked is `port`, as if another process had taken it since."""
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

        # Second belt: the guard itself killed. The node must not be left behind without one.
        if sys.platform == "linux":
            node = descendants(second.server._guard.pid)
            assert any("beam" in process.name() for process in node)
            os.kill(second.server._guard.pid, signal.SIGKILL)
            assert eventually(lambda: not living(node)), living(node)
    finally:
        for child in second.children:
            child.stop()


# --- deaths ---


def test_a_server_that_will_not_start_is_reported_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = private_redis.configuration
    monkeypatch.setattr(private_redis, "configuration", lambda *arguments: "no-such-setting 3\n" + good(*arguments))
    binary = Machine().embedded_redis()
    assert binary is not None
    with pytest.raises(BrokerError, match=r"private Redis ended with status 1") as caught:
        PrivateRedis.start(binary, tmp_path)
    assert "no-such-setting" in str(caught.value)
    assert str(tmp_path / "redis.log") in str(caught.value)


def test_a_server_that_dies_during_the_run_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    with acquire("embedded", folder=tmp_path) as found:
        assert found.dead() is None
        (server,) = descendants(found.children[0]._guard.pid)
        server.kill()
        assert eventually(lambda: found.dead() is not None)
        death = found.dead() or ""
        assert "private Redis ended with status 137" in death and "Ready to accept connections" in death
        with pytest.raises(BrokerError, match="ended with status 137"):
            found.check()


def test_a_server_that_was_killed_comes_back_on_its_port_with_what_it_held(tmp_path: Path) -> None:
    said: list[str] = []
    with acquire("embedded", folder=tmp_path) as found, redis.Redis.from_url(found.redis_url) as client:
        client.set("league", "all of it")
        for time_killed in (1, 2):
            (server,) = descendants(found.children[0]._guard.pid)
            server.kill()
            assert eventually(lambda: found.dead() is not None)
            found.revive(said.append, restarts=2)
            assert len(said) == time_killed and "killed (SIGKILL; out of memory?)" in said[-1]

            def answers() -> bool:
                found.revive(said.append, restarts=2)
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    return False

            assert eventually(answers)
            assert client.get("league") == b"all of it"
        (server,) = descendants(found.children[0]._guard.pid)
        server.kill()
        assert eventually(lambda: found.dead() is not None)
        with pytest.raises(BrokerError, match=r"ended 3 times; giving up \(restarts=2\)"):
            found.revive(said.append, restarts=2)


def test_a_grace_that_is_named_when_stopping_goes_before_the_one_of_the_start(tmp_path: Path) -> None:
    script = "trap 'sleep 2; echo written; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    child = Child("slow", ["sh", "-c", script], tmp_path / "log", grace=0.2)
    assert eventually(lambda: "ready" in child.output())
    child.ask_to_stop(30.0)
    child.stop()
    assert "written" in child.output() and child.status == 0


def test_a_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    child = Child("sleeper", ["sleep", "600"], tmp_path / "log", grace=1.0)
    try:
        with pytest.raises(BrokerError, match=r"sleeper was not ready after 0\.3 s"):
            child.wait_until(lambda: False, timeout=0.3)
    finally:
        child.stop()


# --- stopping ---


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    found = acquire("embedded", folder=tmp_path)
    processes = servers_of(found)
    assert processes
    found.stop()
    assert not living(processes)
    found.stop()
    assert found.dead() is None  # stopped on request is no death


STUBBORN = "trap '' TERM INT HUP; (trap '' TERM; sleep 600) & echo ready; while :; do sleep 600; done"


def stubborn(tmp_path: Path) -> tuple[Child, list[psutil.Process]]:
    """A server, and a process that it has started, that both ignore SIGTERM."""
    child = Child("stubborn", ["sh", "-c", STUBBORN], tmp_path / "log", grace=0.5)
    child.wait_until(lambda: "ready" in child.output() and len(descendants(child._guard.pid)) >= 3, 10)
    return child, [psutil.Process(child._guard.pid), *descendants(child._guard.pid)]


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    child, processes = stubborn(tmp_path)
    began = time.monotonic()
    child.stop()
    assert 0.5 <= time.monotonic() - began < 5
    assert eventually(lambda: not living(processes)), living(processes)


def test_a_guard_that_hangs_does_not_make_stopping_hang(tmp_path: Path) -> None:
    child, processes = stubborn(tmp_path)
    os.kill(child._guard.pid, signal.SIGSTOP)
    began = time.monotonic()
    child.stop()
    assert time.monotonic() - began < 8
    assert eventually(lambda: not living(processes)), living(processes)


@pytest.mark.slow
def test_a_killed_launcher_leaves_no_process(
    launch: Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]],
) -> None:
    mode = "private" if Machine().rabbitmq() else "embedded"
    launcher, below = launch(mode)
    names = {process.name() for process in below}
    if mode == "private":
        assert {"epmd", "beam.smp"} <= names, names
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert eventually(lambda: not living(below)), living(below)


def test_a_launcher_that_ends_without_stopping_leaves_no_process(
    launch: Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]],
) -> None:
    launcher, below = launch("embedded")
    launcher.terminate()
    launcher.wait()
    assert eventually(lambda: not living(below)), living(below)


def test_a_fork_that_outlives_the_launcher_does_not_keep_servers_alive(
    launch: Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]],
) -> None:
    """The fork holds a copy of the pipe on which the guard waits."""
    launcher, below = launch("embedded", "fork")
    servers = [process for process in below if re.search("valkey|guard", " ".join(process.cmdline()))]
    assert len(servers) == 2
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert eventually(lambda: not living(servers)), living(servers)
    assert living(below), "the fork itself must have outlived the launcher"


# --- whoever runs them ---


# Root's interpreter may lie where nobody else can read: what this process will need is imported before it becomes
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
    """RabbitMQ's packaged wrapper refuses ordinary users; the session's servers show the same for root."""
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


def test_servers_that_others_may_reach_listen_where_asked_under_the_password_of_the_environment(
    servers: Servers, tmp_path: Path
) -> None:
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
        ("everywhere", "private", "a-password-of-the-user", "is no address"),
        ("0.0.0.0", "auto", "a-password-of-the-user", "use broker=private"),
    ],
)
def test_servers_are_never_opened_by_half(tmp_path: Path, listen: str, mode: str, password: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        acquire(mode, folder=tmp_path, listen=listen, environment={"WARREN_PASSWORD": password})
