"""Tests of the end of private servers: by themselves, when told, and with the launcher however that ends."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import redis
from support.own_processes import descendants, living, servers_of
from support.waiting import PATIENCE, until

from warren.errors import BrokerError
from workers.servers import Machine, acquire, private_redis, record, running
from workers.servers.folder_lock import is_locked
from workers.servers.private_redis import PrivateRedis
from workers.servers.process import Child

ROOT = Path(__file__).resolve().parents[3]

# A launcher: acquires servers, prints its fork's id if it has one, then "ready", and waits for the test to end it.
LAUNCHER = """
import os, sys, time
from pathlib import Path
from workers import servers
found = servers.acquire(sys.argv[1], folder=Path(sys.argv[2]), say=lambda line: None)
if sys.argv[3] == "fork" and os.fork() == 0:
    os.write(1, b"%d\\n" % os.getpid())  # in one piece: the parent writes too
    time.sleep(600)
os.write(1, b"ready\\n")
time.sleep(600)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]]]:
    """Yield a function that starts LAUNCHER and returns it with every process below it; kill them all afterwards."""
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
        until(lambda: found.dead() is not None)
        death = found.dead() or ""
        assert "private Redis ended with status 137" in death and "Ready to accept connections" in death
        with pytest.raises(BrokerError, match="ended with status 137"):
            found.check()


def in_file(client: redis.Redis) -> bool:
    """Return whether all acknowledged writes are in the append-only file: they wait for a sync that goes on."""
    found: dict[str, int] = client.info("persistence")  # type: ignore[assignment]
    return found["aof_buffer_length"] == 0


def test_a_server_that_was_killed_comes_back_on_its_port_with_what_it_held(tmp_path: Path) -> None:
    said: list[str] = []
    with acquire("embedded", folder=tmp_path) as found, redis.Redis.from_url(found.redis_url) as client:
        client.set("league", "all of it")
        until(lambda: in_file(client))
        for time_killed in (1, 2):
            (server,) = descendants(found.children[0]._guard.pid)
            server.kill()
            until(lambda: found.dead() is not None)
            found.revive(said.append, restarts=2)
            assert len(said) == time_killed and "killed (SIGKILL; out of memory?)" in said[-1]

            def answers() -> bool:
                found.revive(said.append, restarts=2)
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    return False

            until(answers)
            assert client.get("league") == b"all of it"
        (server,) = descendants(found.children[0]._guard.pid)
        server.kill()
        until(lambda: found.dead() is not None)
        with pytest.raises(BrokerError, match=r"ended 3 times; giving up \(restarts=2\)"):
            found.revive(said.append, restarts=2)


def test_a_server_is_not_started_again_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, said = {"bytes": 0}, list[str]()
    monkeypatch.setattr(running.shutil, "disk_usage", lambda place: SimpleNamespace(free=free["bytes"]))
    child = Child("private server", ["sh", "-c", "echo begun"], tmp_path / "log")
    revival = running.Revival()

    def check(done: Callable[[], bool]) -> bool:
        if not child.alive:
            revival.check(child, said.append, 1)
        return done()

    until(lambda: check(lambda: len(said) == 2))
    assert said[1] == f"private server is started again once there is room on the disk of {tmp_path}"
    assert not child.alive and child.log.read_text().count("begun") == 1
    free["bytes"] = running.ROOM
    with pytest.raises(BrokerError, match="ended 2 times; giving up"):
        until(lambda: check(lambda: False))
    assert child.log.read_text().count("begun") == 2


def test_a_server_that_cannot_be_started_for_now_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "TRY_AGAIN", 0.0)
    child, said = Child("private server", ["sh", "-c", "echo begun"], tmp_path / "log"), list[str]()
    revival, start_again = running.Revival(), child.start_again

    def refused() -> None:
        monkeypatch.setattr(child, "start_again", start_again)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def check(done: Callable[[], bool]) -> bool:
        if not child.alive:
            revival.check(child, said.append, 1)
        return done()

    monkeypatch.setattr(child, "start_again", refused)
    with pytest.raises(BrokerError, match="ended 2 times; giving up"):
        until(lambda: check(lambda: False))
    assert said[1].startswith("private server could not be started: [Errno 12]")
    assert child.log.read_text().count("begun") == 2


def test_a_grace_given_at_the_stop_overrides_that_of_the_start(tmp_path: Path) -> None:
    script = "trap 'sleep 2; echo written; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    child = Child("slow", ["sh", "-c", script], tmp_path / "log", grace=0.2)
    until(lambda: "ready" in child.output())
    child.ask_to_stop(PATIENCE)
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


def test_servers_whose_starter_is_interrupted_at_its_last_line_are_stopped(tmp_path: Path) -> None:
    started: list[psutil.Process] = []

    def interrupted(line: str) -> None:
        started.extend(descendants(os.getpid()))
        raise KeyboardInterrupt

    before = set(descendants(os.getpid()))
    with pytest.raises(KeyboardInterrupt):
        acquire("embedded", folder=tmp_path, say=interrupted)
    assert set(started) - before
    assert living([*set(started) - before]) == []
    assert not is_locked(tmp_path)
    assert not record.folders(tmp_path)


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    found = acquire("embedded", folder=tmp_path)
    processes = servers_of(found)
    assert processes
    found.stop()
    assert not living(processes)
    found.stop()
    assert found.dead() is None  # a stop on request is no death


STUBBORN = "trap '' TERM INT HUP; (trap '' TERM; sleep 600) & echo ready; while :; do sleep 600; done"


def stubborn(tmp_path: Path) -> tuple[Child, list[psutil.Process]]:
    """Start a server and a child of it that both ignore SIGTERM; return the server and all processes."""
    child = Child("stubborn", ["sh", "-c", STUBBORN], tmp_path / "log", grace=0.5)
    child.wait_until(lambda: "ready" in child.output() and len(descendants(child._guard.pid)) >= 3, PATIENCE)
    return child, [psutil.Process(child._guard.pid), *descendants(child._guard.pid)]


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    child, processes = stubborn(tmp_path)
    began = time.monotonic()
    child.stop()
    assert time.monotonic() - began >= 0.5
    until(lambda: not living(processes))


def test_a_guard_that_hangs_does_not_make_stopping_hang(tmp_path: Path) -> None:
    child, processes = stubborn(tmp_path)
    os.kill(child._guard.pid, signal.SIGSTOP)
    child.stop()
    until(lambda: not living(processes))


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
    until(lambda: not living(below))


def test_a_launcher_that_ends_without_stopping_leaves_no_process(
    launch: Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]],
) -> None:
    launcher, below = launch("embedded")
    launcher.terminate()
    launcher.wait()
    until(lambda: not living(below))


def test_a_fork_that_outlives_the_launcher_does_not_keep_servers_alive(
    launch: Callable[..., tuple[subprocess.Popen[str], list[psutil.Process]]],
) -> None:
    """Check that the guard ends them though the fork holds a copy of the pipe on which it waits."""
    launcher, below = launch("embedded", "fork")
    servers = [process for process in below if re.search("valkey|guard", " ".join(process.cmdline()))]
    assert len(servers) == 2
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    until(lambda: not living(servers))
    assert living(below), "the fork itself must have outlived the launcher"
