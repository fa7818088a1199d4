"""Tests of the choice of a run's servers: each step in order, on real servers, on machines that lack a step's needs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import kombu
import psutil
import pytest
import redis
from support.waiting import PATIENCE

from warren.errors import BrokerError, ConfigurationError, UnknownName
from workers.servers import BROKER_VARIABLE, REDIS_VARIABLE, Machine, Servers, acquire, modes, record
from workers.servers.modes import given_urls
from workers.servers.ports import free_port
from workers.servers.private_rabbitmq import Node
from workers.servers.process import Child

REAL = Machine()
NEEDED_BY_SCRIPTS = "sh rm chmod ln env dirname readlink basename date sed cat uname expr"


def bare(tmp_path: Path, **other: object) -> Machine:
    """Return a machine on which nothing listens and only the embedded server's package is installed."""
    settings: dict[str, object] = {
        "path": str(tmp_path / "bin"),
        "places": (),
        "scripts": tmp_path / "scripts",
        "amqp_port": free_port(),
        "redis_port": free_port(),
        "os_release": tmp_path / "os-release",
        "service_policy": tmp_path / "policy",
    }
    return Machine(**{**settings, **other})  # type: ignore[arg-type]


@pytest.fixture
def get(tmp_path: Path) -> Iterator[Callable[..., Servers]]:
    """Yield `acquire` for a folder of the test and an empty environment; stop all that it started afterwards."""
    started: list[Servers] = []

    def call(mode: str = "auto", **arguments: object) -> Servers:
        arguments = {"folder": tmp_path / "run", "environment": {}, "machine": bare(tmp_path), **arguments}
        started.append(acquire(mode, **arguments))  # type: ignore[arg-type]
        return started[-1]

    yield call
    for found in started:
        found.stop()


@pytest.fixture
def open_redis(tmp_path: Path) -> Iterator[int]:
    """Yield the port of a Redis that asks for no password, as a distribution installs it."""
    binary = REAL.redis() or REAL.embedded_redis()
    assert binary is not None
    port = free_port()
    child = Child(
        "open Redis", [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], tmp_path / "open.log"
    )
    child.wait_until(lambda: _accepts(port), PATIENCE)
    yield port
    child.stop()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def servers(private_servers: Servers) -> Servers:
    """Return private servers, whichever servers the rest of the session uses."""
    return private_servers


@pytest.fixture
def guest(servers: Servers) -> Iterator[int]:
    """Yield the port of a RabbitMQ that admits guest/guest, as a distribution installs it."""
    node = Node(**(record.read(servers.folder).node or {}))
    quiet = {"stdout": subprocess.DEVNULL}
    assert node.control(["add_user", "guest", "guest"], **quiet).returncode == 0
    assert node.control(["set_permissions", "guest", ".*", ".*", ".*"], **quiet).returncode == 0
    yield urlsplit(servers.broker_url).port or 0
    node.control(["delete_user", "guest"], **quiet)


# --- given ---


def test_given_urls_come_first(get: Callable[..., Servers], servers: Servers, open_redis: int, tmp_path: Path) -> None:
    said: list[str] = []
    found = get(
        broker_url=servers.broker_url,
        redis_url=servers.redis_url,
        machine=bare(tmp_path, redis_port=open_redis),
        say=said.append,
    )
    assert (found.broker_url, found.redis_url, found.kind) == (servers.broker_url, servers.redis_url, "rabbitmq")
    assert found.children == []
    assert len(said) == 1 and said[0].count("as given") == 2
    for url in (servers.broker_url, servers.redis_url):
        assert (urlsplit(url).password or "") not in said[0]


def test_the_environment_gives_urls_as_well(get: Callable[..., Servers], embedded: Servers) -> None:
    given = {BROKER_VARIABLE: embedded.broker_url, REDIS_VARIABLE: embedded.redis_url}
    found = get("external", environment=given)
    assert found.environment() == given
    assert found.kind == "redis"


def test_a_redis_given_as_broker_is_result_backend_too(get: Callable[..., Servers], embedded: Servers) -> None:
    found = get(broker_url=embedded.broker_url)
    assert found.redis_url == found.broker_url == embedded.broker_url
    assert found.children == []


def test_a_given_url_that_fails_is_never_replaced(get: Callable[..., Servers], open_redis: int, tmp_path: Path) -> None:
    down = f"redis://:secret@127.0.0.1:{free_port()}/0"
    with pytest.raises(BrokerError, match=r"redis://:\*\*\*@127.0.0.1:\d+/0 is down"):
        get(broker_url=down, machine=bare(tmp_path, redis_port=open_redis))


def test_external_without_urls_names_both_that_are_missing(get: Callable[..., Servers]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        get("external")
    assert len(caught.value.problems) == 2
    assert BROKER_VARIABLE in caught.value.problems[0] and REDIS_VARIABLE in caught.value.problems[1]


def test_a_url_with_a_mode_that_takes_none_is_refused(get: Callable[..., Servers]) -> None:
    with pytest.raises(ConfigurationError, match="broker=embedded takes no URLs"):
        get("embedded", redis_url="redis://:secret@h/0")


def test_an_unknown_mode_is_answered_with_near_ones(get: Callable[..., Servers]) -> None:
    with pytest.raises(UnknownName, match="did you mean embedded"):
        get("embeded")


# --- already listening ---


def test_listening_servers_are_used_before_any_is_started(
    get: Callable[..., Servers], guest: int, open_redis: int, tmp_path: Path
) -> None:
    said: list[str] = []
    machine = Machine(amqp_port=guest, redis_port=open_redis)
    for mode in ("auto", "local"):
        found = get(mode, machine=machine, say=said.append, folder=tmp_path / mode)
        assert found.broker_url == f"amqp://guest:guest@127.0.0.1:{guest}/%2F"
        assert found.redis_url == f"redis://127.0.0.1:{open_redis}/0"
        assert found.children == []
    assert said[0].count("already listening") == 2


def test_rabbitmq_may_be_listening_and_redis_private(get: Callable[..., Servers], guest: int, tmp_path: Path) -> None:
    found = get(machine=Machine(amqp_port=guest, redis_port=free_port()))
    assert found.kind == "rabbitmq" and f":{guest}/" in found.broker_url
    assert [child.name for child in found.children] == ["private Redis"]
    found.check()


def test_servers_that_refuse_the_login_are_skipped_with_a_message(
    get: Callable[..., Servers], servers: Servers, tmp_path: Path
) -> None:
    """The session's servers ask for passwords, and a run that only finds them listening has none."""
    said: list[str] = []
    ports = {"amqp_port": urlsplit(servers.broker_url).port, "redis_port": urlsplit(servers.redis_url).port}
    found = get(machine=bare(tmp_path, **ports), say=said.append)
    assert "skipped" in said[0] and "refuses the password of user 'guest'" in said[0]
    assert "embedded" in said[-1]
    assert found.kind == "redis"
    with pytest.raises(BrokerError, match="refuses the password of user 'guest'"):
        get("local", machine=bare(tmp_path, **ports), folder=tmp_path / "local")


def test_a_listening_redis_with_a_password_is_skipped_with_a_message(
    get: Callable[..., Servers], servers: Servers, guest: int
) -> None:
    said: list[str] = []
    found = get(machine=Machine(amqp_port=guest, redis_port=urlsplit(servers.redis_url).port or 0), say=said.append)
    assert "skipped" in said[0] and "asks for a password" in said[0]
    assert [child.name for child in found.children] == ["private Redis"]


def test_local_with_nothing_listening_says_what_was_looked_for(get: Callable[..., Servers], tmp_path: Path) -> None:
    machine = bare(tmp_path)
    with pytest.raises(
        BrokerError, match=f"no broker with broker=local:\n  listening: nothing listens on port {machine.amqp_port}"
    ):
        get("local", machine=machine)


# --- private, installed, embedded ---


def test_private_without_binaries_says_which_are_needed(get: Callable[..., Servers]) -> None:
    with pytest.raises(BrokerError, match="rabbitmq-server, rabbitmqctl, erl and epmd are not all on PATH"):
        get("private")


def test_install_elsewhere_than_on_debian_says_so(get: Callable[..., Servers]) -> None:
    with pytest.raises(BrokerError, match="installed: this is not Debian or Ubuntu"):
        get("install")


def test_missing_servers_are_installed_and_then_started(
    get: Callable[..., Servers], servers: Servers, tmp_path: Path
) -> None:
    """Install by an apt-get that only puts the real binaries on PATH."""
    found = REAL.rabbitmq()
    redis_server = REAL.redis()
    assert found is not None and redis_server is not None
    tools, programs = tmp_path / "bin", tmp_path / "installed"
    for folder in (tools, programs):
        folder.mkdir()
    for name in NEEDED_BY_SCRIPTS.split():
        (tools / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "os-release").write_text("ID=debian\n", encoding="utf-8")
    apt_get = tools / "apt-get"
    links = (found.server, found.ctl, found.epmd, REAL.which("erl"), redis_server)
    apt_get.write_text(f"#!/bin/sh\nln -sf {' '.join(map(str, links))} {programs}\n", encoding="utf-8")
    apt_get.chmod(0o755)
    sudo = tools / "sudo"
    sudo.write_text('#!/bin/sh\nshift\ncase "$1" in true) ;; *) exec "$@" ;; esac\n', encoding="utf-8")
    sudo.chmod(0o755)

    said: list[str] = []
    machine = bare(tmp_path, path=f"{tools}:{programs}", scripts=tmp_path, user=1000)
    assert machine.rabbitmq() is None and machine.redis() is None
    started = get("auto", machine=machine, say=said.append)
    assert "installing rabbitmq-server and redis-server" in said[0]
    assert "private RabbitMQ" in said[-1] and "private Redis" in said[-1]
    started.check()


def test_a_bare_machine_uses_the_embedded_server_for_everything(get: Callable[..., Servers]) -> None:
    said: list[str] = []
    found = get("auto", say=said.append)
    assert found.kind == "redis"
    assert len(said) == 1 and "embedded Valkey" in said[0]
    assert [child.name for child in found.children] == ["private Redis"]
    assert found.broker_url != found.redis_url  # two databases of the one server
    with kombu.Connection(found.broker_url) as connection:
        queue = connection.SimpleQueue("a-queue")
        queue.put({"move": 3})
        assert queue.get(timeout=PATIENCE).payload == {"move": 3}
        queue.close()
    with redis.Redis.from_url(found.redis_url) as client:
        client.set("a-key", "kept apart")
        assert client.keys() == [b"a-key"]


def test_a_rabbitmq_that_will_not_start_is_skipped_with_its_last_lines(
    get: Callable[..., Servers], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("rabbitmq-server", "rabbitmqctl", "erl"):
        script = tmp_path / "bin" / name
        script.write_text("#!/bin/sh\necho this Erlang is too old\nexit 3\n", encoding="utf-8")
        script.chmod(0o755)
    (tmp_path / "bin/epmd").symlink_to(shutil.which("sleep") or "")
    said: list[str] = []
    found = get("auto", machine=bare(tmp_path, path=f"{tmp_path}/bin:/bin:/usr/bin", scripts=tmp_path), say=said.append)
    assert "skipped: private RabbitMQ ended with status 3" in said[1]
    assert "this Erlang is too old" in said[1]
    assert found.kind == "redis"
    with pytest.raises(BrokerError, match="this Erlang is too old"):
        get("private", machine=bare(tmp_path, path=f"{tmp_path}/bin:/bin:/usr/bin"), folder=tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "fault"),
    [*((f"Ada{quote}s runs", f"has a {quote}") for quote in "'\"`"), ("B\udcfccher", "is not in UTF-8")],
)  # fmt: skip
def test_no_rabbitmq_starts_in_a_folder_that_it_would_hang_in(
    get: Callable[..., Servers], tmp_path: Path, name: str, fault: str
) -> None:
    (tmp_path / "bin").mkdir()
    for program in ("rabbitmq-server", "rabbitmqctl", "erl", "epmd"):
        (tmp_path / "bin" / program).write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
        (tmp_path / "bin" / program).chmod(0o755)
    machine = bare(tmp_path, path=f"{tmp_path}/bin", scripts=tmp_path / "bin")
    with pytest.raises(BrokerError, match=f"RabbitMQ cannot run in .*, whose path {fault}"):
        get("private", machine=machine, folder=tmp_path / name)
    assert get("auto", machine=machine, folder=tmp_path / name).kind == "redis"


def test_without_the_embedded_package_the_error_names_every_step(get: Callable[..., Servers], tmp_path: Path) -> None:
    with pytest.raises(BrokerError) as caught:
        get("auto", machine=bare(tmp_path, embedded_package="no_such_package"))
    for step in modes.BROKER_STEPS["auto"]:
        assert f"  {step}: " in str(caught.value)


# --- the folder ---


def test_two_runs_cannot_share_a_folder(get: Callable[..., Servers]) -> None:
    first = get("embedded")
    with pytest.raises(ConfigurationError, match=r"another run uses the folder .* \(process \d+ on "):
        get("embedded")
    first.check()  # unharmed
    first.stop()
    get("embedded").check()


def test_only_its_owner_reads_the_record_and_it_ends_with_the_servers(
    get: Callable[..., Servers], tmp_path: Path
) -> None:
    found = get("embedded")
    path = tmp_path / "run" / record.FOLDER / record.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text(encoding="utf-8"))["broker_url"] == found.broker_url
    found.stop()
    assert not path.exists()
    with pytest.raises(ConfigurationError, match="has no running servers"):
        record.read(tmp_path / "run")


def test_the_newest_record_below_a_folder_is_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no run below"):
        record.newest(tmp_path)
    for age, run in ((20, "game/old"), (10, "game/new"), (30, "deep/a/b/c")):
        (tmp_path / run / record.FOLDER).mkdir(parents=True)
        record.Record("amqp://h", "redis://h", "rabbitmq", run, 1).write(tmp_path / run)
        assert abs(time.time() - (record.started_at(tmp_path / run) or 0.0)) < 3600
        (tmp_path / run / record.STARTED).write_text(json.dumps({"started_at": time.time() - age}))
    (tmp_path / "game/old" / record.FOLDER / record.FILE).touch()  # a copy or an edit of the file starts no servers
    assert record.newest(tmp_path) == tmp_path / "game/new"
    assert record.read(record.newest(tmp_path)).description == "game/new"


def test_a_run_that_goes_on_is_newer_than_one_that_was_killed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for age, run, pid in ((20, "game/lives", os.getpid()), (10, "game/killed", ended.pid)):
        (tmp_path / run / record.FOLDER).mkdir(parents=True)
        record.Record("amqp://h", "redis://h", "rabbitmq", run, pid).write(tmp_path / run)
        (tmp_path / run / record.STARTED).write_text(json.dumps({"started_at": time.time() - age}))
    assert record.newest(tmp_path) == tmp_path / "game/lives"


def test_urls_of_another_runs_private_servers_are_not_taken_unasked(tmp_path: Path) -> None:
    taken = {"WARREN_BROKER_URL": "amqp://u@h//", "WARREN_REDIS_URL": "redis://h/0"}
    assert given_urls("auto", None, None, taken) == ("amqp://u@h//", "redis://h/0")
    taken["WARREN_SERVERS"] = "private"
    assert given_urls("auto", None, None, taken) == (None, None)
    assert given_urls("auto", "amqp://other//", None, taken) == ("amqp://other//", None)
    assert given_urls("external", None, None, taken) == ("amqp://u@h//", "redis://h/0")


# --- a person's tools ---


def tool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m workers.servers ...`."""
    return subprocess.run(
        [sys.executable, "-m", "workers.servers", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_person_sees_the_queues_of_a_private_rabbitmq(servers: Servers, run_name: str) -> None:
    with kombu.Connection(servers.broker_url) as connection:
        connection.SimpleQueue(run_name).put("x")
        listed = tool("--run", servers.folder, "rabbitmqctl", "list_queues", "--silent", "name", "messages")
        connection.default_channel.queue_delete(run_name)
    assert listed.returncode == 0, listed.stderr
    assert f"{run_name}\t1" in listed.stdout.splitlines()


def test_status_shows_what_answers_and_no_password(servers: Servers) -> None:
    shown = tool("--run", servers.folder, "status")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("answers:") == 2
    for url in (servers.broker_url, servers.redis_url):
        assert (urlsplit(url).password or "") not in shown.stdout + shown.stderr


def test_a_shell_takes_over_the_run_and_its_servers(tmp_path: Path) -> None:
    folder = tmp_path / "o'hare"  # its quote has to be escaped for a shell
    (folder / record.FOLDER).mkdir(parents=True)
    record.Record("amqp://u:p'w@h//", "redis://:a b@h/0", "redis", "broker: external", 1).write(folder)
    (folder / "config.yaml").write_text("run: my-run\n")
    assert exported(folder) == "amqp://u:p'w@h//|redis://:a b@h/0|my-run|"
    record.Record("amqp://h//", "redis://h/0", "redis", "broker: external", 1, None, "other-run").write(folder)
    assert exported(folder).endswith("|other-run|"), "a run from a file has no config.yaml"


def test_a_run_is_named_by_its_folder_or_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, run in (("one", "first"), ("two", None)):
        (tmp_path / "runs/game" / name / record.FOLDER).mkdir(parents=True)
        made = record.Record(f"amqp://{name}//", f"redis://{name}/0", "redis", "broker: external", 1, None, run)
        made.write(tmp_path / "runs/game" / name)
        (tmp_path / "runs/game" / name / "config.yaml").write_text("run: second\n")
    for run, at in (("first", "one"), ("second", "two"), ("runs/game/one", "one")):
        assert f"WARREN_BROKER_URL=amqp://{at}//" in tool("--run", run, "env").stdout
    refused = tool("--run", "secnd", "env")
    assert refused.returncode == 2 and "run 'secnd' does not exist; did you mean second?" in refused.stderr


def test_rabbitmqctl_takes_options_of_its_own(private_servers: Servers) -> None:
    told = tool("--run", private_servers.folder, "rabbitmqctl", "-q", "list_queues", "name")
    assert told.returncode == 0, told.stderr
    assert "Listing queues" not in told.stdout


def test_redis_cli_takes_the_url_of_a_private_redis(private_servers: Servers) -> None:
    if shutil.which("redis-cli") is None:
        pytest.skip("redis-cli: redis-server is not installed")
    told = subprocess.run(
        ["redis-cli", "-u", private_servers.redis_url, "ping"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert told.stdout.strip() == "PONG", told.stdout + told.stderr


def exported(folder: Path) -> str:
    """Return the variables that a shell has after `eval "$(python -m workers.servers env)"`, each followed by `|`."""
    shown = tool("--run", folder, "env")
    assert shown.returncode == 0, shown.stderr
    script = f'{shown.stdout}\nprintf "%s|" "$WARREN_BROKER_URL" "$WARREN_REDIS_URL" "$WARREN_RUN"'
    taken = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return taken.stdout


def test_status_of_a_run_whose_servers_are_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / record.FOLDER).mkdir()
    down = f"redis://:secret@127.0.0.1:{free_port()}/0"
    gone = next(pid for pid in range(2**22 - 1, 1, -1) if not psutil.pid_exists(pid))
    record.Record(down, down, "redis", "broker: embedded", gone).write(tmp_path)
    shown = tool("--run", tmp_path, "status")
    assert shown.returncode == 1
    assert f"({gone}) is gone" in shown.stdout and "is down" in shown.stdout
    assert "secret" not in shown.stdout + shown.stderr


def test_the_tool_says_in_one_line_that_a_folder_has_no_servers(tmp_path: Path) -> None:
    shown = tool("--run", tmp_path, "rabbitmqctl", "status")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith(f"error: {tmp_path} has no running servers")
