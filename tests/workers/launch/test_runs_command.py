"""Tests of `python -m workers.runs`: its help, its errors, and the runs that it finds in a Redis."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import redis
from support.lease_holders import held_by_the_dead

from warren.errors import ConfigurationError
from workers import runs as command
from workers.launch.hosts import membership as module
from workers.launch.hosts.membership import Membership, Presence
from workers.launch.hosts.scale_request import launched
from workers.launch.traces import runs
from workers.runtime.lease import Lease
from workers.servers import Servers


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("list", "stop", "purge", "WARREN_BROKER_URL"):
        assert word in text


def test_one_server_url_without_the_other_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARREN_REDIS_URL", raising=False)
    assert command.main(["--broker-url", "amqp://nowhere"]) == 2
    assert "--broker-url and --redis-url: give both" in capsys.readouterr().err


def test_without_servers_there_are_no_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("WARREN_BROKER_URL", "WARREN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert command.main([]) == 0
    assert "no runs (no servers: none are named, and no run has its own)" in capsys.readouterr().out


def test_an_unknown_run_is_refused_with_the_command_that_lists_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"^run 'mine' does not exist; python -m workers\.runs lists them$"):
        runs.find("mine", [])


def test_a_run_is_found_by_its_redis_keys_and_removed_with_its_players(embedded: Servers, run_name: str) -> None:
    client = redis.Redis.from_url(embedded.redis_url)
    prefix = f"warren.{run_name}:"
    client.set(f"{prefix}card", json.dumps({"kind": "league", "folder": "/runs/x"}))
    client.hset(f"{prefix}league:player:main_exploiter", "steps", 3)
    client.set(f"{prefix}leader", b"\xff no presence")
    servers = runs.Servers(embedded.broker_url, embedded.redis_url)
    found = runs.find(run_name, [servers])
    assert (found.leader, found.keys, found.players) == (None, 3, ["main_exploiter"])
    assert found.describe() == f"{run_name}: league whose launcher is gone; it left 3 keys in Redis, folder /runs/x"
    assert found.topology.players == ("main", "main_exploiter")
    client.delete(f"{prefix}leader")
    assert "removed" in runs.purge(found)
    assert list(client.scan_iter(f"{prefix}*")) == []
    with pytest.raises(ConfigurationError, match="does not exist"):
        runs.find(run_name, [servers])


def test_a_led_run_is_not_purged_and_a_leaderless_one_not_stopped(
    embedded: Servers, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE", 600.0)  # nothing renews it here
    servers = runs.Servers(embedded.broker_url, embedded.redis_url)
    client = redis.Redis.from_url(embedded.redis_url)
    membership = Membership(embedded.redis_url, runs.Topology(run_name))
    membership.take(True, Presence("alone"))
    assert run_name in launched(client)
    with pytest.raises(ConfigurationError, match="stop it first"):
        runs.purge(runs.find(run_name, [servers]))
    client.set(f"warren.{run_name}:pool", "x")
    membership.leave(True, "alone")
    assert run_name not in launched(client)
    with pytest.raises(ConfigurationError, match="its launcher is gone"):
        runs.stop(runs.find(run_name, [servers]))
    runs.purge(runs.find(run_name, [servers]))


def test_a_run_of_live_roles_without_a_launcher_is_listed_and_not_purged(
    embedded: Servers, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--broker-url", embedded.broker_url, "--redis-url", embedded.redis_url]
    client, prefix = redis.Redis.from_url(embedded.redis_url), f"warren.{run_name}:"
    client.set(f"{prefix}pool", "weights")
    learner = Lease(client, prefix, "learner of player main", seconds=600.0)
    learner.take(threading.Event())
    assert command.main(named) == 0
    lines = capsys.readouterr().out.splitlines()
    [line] = [number for number, text in enumerate(lines) if text.startswith(f"{run_name}: ")]
    assert "run, running, without a launcher: learner of player main (process " in lines[line]
    assert f"purge {run_name}" not in "".join(lines)
    assert command.main([*named, "purge", run_name, "--yes"]) == 2
    refused = capsys.readouterr().err
    assert f"{run_name} is running: learner of player main (process " in refused
    assert "end these processes where they were started" in refused and "then purge it" in refused
    assert command.main([*named, "stop", run_name]) == 2
    assert "since the run has no launcher" in capsys.readouterr().err
    assert client.get(f"{prefix}pool") == b"weights"
    assert not client.exists(f"{prefix}leader", f"{prefix}leader:last"), "a refused command left a launcher's place"
    learner.release()
    assert command.main([*named, "purge", run_name, "--yes"]) == 0
    assert list(client.scan_iter(f"{prefix}*")) == []


def test_a_role_that_starts_before_the_purge_prevents_it(embedded: Servers, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(embedded.redis_url), f"warren.{run_name}:"
    client.set(f"{prefix}pool", "weights")
    found = runs.find(run_name, [runs.Servers(embedded.broker_url, embedded.redis_url)])
    assert found.gone
    keeper = Lease(client, prefix, "the league's keeper", seconds=600.0)
    keeper.take(threading.Event())
    with pytest.raises(ConfigurationError, match="is running: the league's keeper"):
        runs.purge(found)
    assert client.get(f"{prefix}pool") == b"weights"
    keeper.release()
    runs.purge(found)


def test_a_run_whose_roles_are_dead_is_purged(embedded: Servers, run_name: str) -> None:
    client, prefix = redis.Redis.from_url(embedded.redis_url), f"warren.{run_name}:"
    held_by_the_dead(client, prefix, "learner of player main")
    found = runs.find(run_name, [runs.Servers(embedded.broker_url, embedded.redis_url)])
    assert found.describe() == f"{run_name}: run whose launcher is gone; it left 2 keys in Redis"
    runs.purge(found)
    assert list(client.scan_iter(f"{prefix}*")) == []
