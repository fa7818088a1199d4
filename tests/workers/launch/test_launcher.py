"""Tests of the launcher: whatever goes wrong in it, the run ends in order and its outcome is written."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.lease_holders import held_elsewhere
from support.waiting import PATIENCE, until

from tasks.app import create_app
from tasks.events import STATUS, Subscription
from tasks.topology import Topology
from warren.errors import BrokerError
from workers.config.roles import Done
from workers.config.too_many import NO_THREAD, TOO_MANY
from workers.launch.folder import RunFolder
from workers.launch.host_run import Outcome
from workers.launch.hosts import places
from workers.launch.kinds.services_monitor import ServicesMonitor, ShareMonitor
from workers.launch.launcher import Launcher
from workers.launch.processes import deaths, failure_log
from workers.launch.spec import ProcessSpec, RunSpec, ServersSpec
from workers.runtime.lease import living
from workers.servers import Servers


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restore the signal handlers that a launcher has taken over."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


class Screen:
    """A view that keeps the lines that are said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, *_: Any) -> None:
        pass


class Faulty(ShareMonitor):
    """A monitor that raises at each poll, like a launcher with a fault."""

    def poll(self) -> str | None:
        raise TypeError("'<' not supported between instances of 'str' and 'int'")


class Crowded(ShareMonitor):
    """A monitor whose thread the system refuses, as beyond `ulimit -u`."""

    def begin(self) -> None:
        raise RuntimeError(NO_THREAD)


class Finished(ShareMonitor):
    """A monitor that ends at once, and raises while it makes the account."""

    def poll(self) -> str | None:
        return "finished"

    def account(self) -> None:
        raise redis.ConnectionError("Redis is away")


class Refused(ServicesMonitor):
    """A monitor of a run from a file whose broker refuses what it begins with."""

    def begin(self) -> None:
        raise BrokerError("the broker refuses this user")


class Accounts(ShareMonitor):
    """A monitor that ends at once, and keeps the names of processes that live while the account is made."""

    living: list[str] = ["nobody has asked"]

    def poll(self) -> str | None:
        return "finished"

    def account(self) -> None:
        client = redis.Redis.from_url(self.context.redis_url)
        Accounts.living = [str(holder) for holder in living(client, self.context.topology.key_prefix)]


def launch(
    folder: Path,
    servers: Servers,
    run: str,
    monitor: type[ShareMonitor],
    *processes: ProcessSpec,
    screen: Screen | None = None,
) -> tuple[Outcome, Screen]:
    given = ServersSpec("external", servers.broker_url, servers.redis_url)
    spec = RunSpec("services", run, "title", folder, {"run.yaml": "x: 1"}, processes, given)
    seen: Any = screen or Screen()
    with RunFolder.take(folder) as taken:
        make = partial(monitor, seen)
        return Launcher(spec, taken, seen, make).run(), seen


def test_a_fault_of_the_launcher_still_ends_the_run_in_order(tmp_path: Path, embedded: Servers, run_name: str) -> None:
    sleeper = ProcessSpec("sleeper", range(2), ("-c", "import time; time.sleep(600)"))
    outcome, screen = launch(tmp_path, embedded, run_name, Faulty, sleeper)
    assert (outcome.state, outcome.status) == ("failed", 1)
    assert "'<' not supported" in "\n".join(screen.said)
    assert json.loads((tmp_path / "outcome.json").read_text())["state"] == "failed"
    assert list(redis.Redis.from_url(embedded.redis_url).scan_iter(f"warren.{run_name}:*")) == []


def test_a_thread_too_many_is_one_error_and_ends_the_run(tmp_path: Path, embedded: Servers, run_name: str) -> None:
    outcome, screen = launch(tmp_path, embedded, run_name, Crowded)
    assert (outcome.state, outcome.status, outcome.why) == ("failed", 1, TOO_MANY)
    assert screen.said[-1] == f"error: {TOO_MANY}"
    assert list(redis.Redis.from_url(embedded.redis_url).scan_iter(f"warren.{run_name}:*")) == []


def test_a_run_from_a_file_that_cannot_begin_ends_in_order(tmp_path: Path, embedded: Servers, run_name: str) -> None:
    outcome, screen = launch(tmp_path, embedded, run_name, Refused)
    assert (outcome.state, outcome.status) == ("failed", 1)
    assert screen.said[-1] == "error: the broker refuses this user"
    assert list(redis.Redis.from_url(embedded.redis_url).scan_iter(f"warren.{run_name}:*")) == []


def test_a_run_is_removed_though_its_account_fails(tmp_path: Path, embedded: Servers, run_name: str) -> None:
    outcome, screen = launch(tmp_path, embedded, run_name, Finished)
    assert (outcome.state, outcome.status) == ("finished", 0)
    assert any("the account: Redis is away" in text for text in screen.said)
    assert list(redis.Redis.from_url(embedded.redis_url).scan_iter(f"warren.{run_name}:*")) == []


def test_the_account_is_made_once_no_process_of_the_run_lives(
    tmp_path: Path, embedded: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "END_WITHIN", PATIENCE)
    client, topology = redis.Redis.from_url(embedded.redis_url), Topology(run_name)
    role = held_elsewhere(client, topology.key_prefix, "actor-1000")
    app = create_app(topology, embedded.broker_url, embedded.redis_url)
    screen, waiting = Screen(), "waiting for actor-1000 (process 77 on gpu-3) to stop"

    def stop(_: object) -> None:
        until(lambda: waiting in screen.said, f"{waiting!r} on the screen")
        role.release()

    listening = Subscription(app, topology, {STATUS: stop}, "actor-1000").start()
    outcome, _ = launch(tmp_path, embedded, run_name, Accounts, screen=screen)
    listening.stop()
    assert outcome.status == 0 and Accounts.living == []


def test_a_critical_process_that_cannot_go_on_ends_the_run_with_its_last_lines(
    tmp_path: Path, embedded: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "SOON", 3600.0)  # on a busy machine a start alone takes long
    failing = ProcessSpec("actor", range(1), ("-c", "raise ValueError('no such move')"), done=Done.run)
    outcome, _ = launch(tmp_path, embedded, run_name, ShareMonitor, failing)
    assert outcome.state == "failed"
    assert "failed twice in the same way" in outcome.why and "ValueError: no such move" in outcome.why
    *restarts, last, run = failure_log.read(tmp_path)
    assert last["name"] == "actor-0" and last["cause"] == "ValueError: no such move" and "giving up" in last["then"]
    assert all("restarting actor-0" in one["then"] for one in restarts)
    assert run["name"] == "run" and run["then"] == "failed" and "failed twice in the same way" in run["cause"]


def test_a_process_that_is_done_with_the_run_ends_it(tmp_path: Path, embedded: Servers, run_name: str) -> None:
    once = ProcessSpec("learner", range(1), ("-c", "pass"), done=Done.run, single=True)
    outcome, _ = launch(tmp_path, embedded, run_name, ShareMonitor, once)
    assert (outcome.state, outcome.status) == ("done", 0)
