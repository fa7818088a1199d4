"""The doctor on real servers that are made to misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from support import brokers, launched

from tasks.topology import Topology
from warren.errors import BrokerError
from workers.doctor import clocks, quick
from workers.doctor.broker_checks import QUORUM_ALONE_TIMES_OUT
from workers.doctor.broker_facts import BrokerFacts, over_amqp
from workers.doctor.redis_server import SKEW_SEEN
from workers.servers import Servers


@pytest.fixture
def own_redis(own_servers: Servers) -> Iterator[redis.Redis]:
    """Yield the test's own Redis; restore its memory settings afterwards."""
    client = redis.Redis.from_url(own_servers.redis_url)
    before: Any = client.config_get("maxmemory*")
    yield client
    client.config_set("maxmemory", before["maxmemory"])
    client.config_set("maxmemory-policy", before["maxmemory-policy"])
    client.close()


ROOT = Path(__file__).resolve().parents[3]
# With this capability root may write into a read-only folder.
UNPRIVILEGED = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []


def doctor(*arguments: str, prefix: Sequence[str] = (), folder: Path = ROOT) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit status of `python -m workers.doctor --json`, run in `folder`, and its findings by check."""
    here = {"PYTHONPATH": str(ROOT)}
    if folder != ROOT:
        command = [*prefix, sys.executable, "-m", "workers.doctor", "--json", *arguments]
        clean = launched.without_warren() | here
        done = subprocess.run(command, env=clean, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    else:
        done = launched.command("workers.doctor", "--json", *arguments, given=here)
    assert done.stdout, done.stderr
    return done.returncode, {one["check"]: one for one in json.loads(done.stdout)["findings"]}


def at(servers: Servers) -> list[str]:
    """Return options that name these servers and their rabbitmqctl."""
    found = ["--broker-url", servers.broker_url, "--redis-url", servers.redis_url]
    given = os.environ.get("WARREN_TEST_RABBITMQCTL")
    return [*found, "--rabbitmqctl", given] if given else ["--run", str(servers.folder)]


def test_doctor_sees_alarms_and_evictions_by_redis(own_servers: Servers, own_redis: redis.Redis) -> None:
    own_redis.config_set("maxmemory", "512mb")
    own_redis.config_set("maxmemory-policy", "allkeys-lru")
    brokers.control(own_servers, "set_vm_memory_high_watermark", "0.0001")
    try:
        status, found = doctor(*at(own_servers), "experiment=kuhn")
    finally:
        brokers.control(own_servers, "set_vm_memory_high_watermark", "0.6")
    assert status == 2
    assert {check for check, one in found.items() if one["level"] == "error"} >= {
        "publishing", "alarms", "maxmemory-policy",
    }  # fmt: skip
    assert "memory" in found["alarms"]["found"]
    assert found["permissions"]["level"] == "not seen"
    assert "noeviction" in found["maxmemory-policy"]["remedy"]


def test_healthy_servers_pass(servers: Servers) -> None:
    status, found = doctor(*at(servers), "actors=1")
    assert status == 0, found
    for check in ("settings", "broker version", "publishing", "permissions", "alarms", "consumer timeout", "clock"):
        assert found[check]["level"] == "ok", found[check]


def test_doctor_of_a_role_needs_no_writable_folder(servers: Servers, tmp_path: Path) -> None:
    read_only = tmp_path / "read-only"
    read_only.mkdir(mode=0o555)

    def there(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
        urls = "--broker-url", servers.broker_url, "--redis-url", servers.redis_url
        return doctor(*urls, *arguments, prefix=UNPRIVILEGED, folder=read_only)

    status, found = there("run=here", "trial=here")
    assert status == 2
    assert "is not writable" in found["settings"]["found"]
    status, found = there("--role", "learner", "run=here", "trial=here")
    assert status == 0, found
    assert found["permissions"]["level"] == "ok"
    assert "run folder" not in found


def test_doctor_of_a_role_reports_settings_that_the_role_would_refuse(servers: Servers) -> None:
    urls = "--broker-url", servers.broker_url, "--redis-url", servers.redis_url
    status, found = doctor(*urls, "--role", "league", "run=here", "trial=here")
    assert status == 2
    assert "this role belongs to a league" in found["settings"]["found"]


def test_without_rabbitmqctl_doctor_says_what_seeing_more_needs(servers: Servers) -> None:
    status, found = doctor(
        "--broker-url", servers.broker_url, "--redis-url", servers.redis_url,
        "--management-url", "http://127.0.0.1:1",
    )  # fmt: skip
    assert status == 0, found
    assert found["alarms"]["level"] == "not seen"
    times_out = BrokerFacts(version=found["broker version"]["found"]).numbers < QUORUM_ALONE_TIMES_OUT
    assert found["consumer timeout"]["level"] == ("not seen" if times_out else "ok")
    assert "management plugin" in found["alarms"]["remedy"]


def test_each_row_is_printed_before_the_next_check_has_ended(servers: Servers, tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    (tmp_path / "control.sh").write_text(f"touch {begun}; while [ ! -e {go} ]; do sleep 0.1; done; exit 1\n")
    urls = "--broker-url", servers.broker_url, "--redis-url", servers.redis_url
    control = "--rabbitmqctl", f"sh {tmp_path / 'control.sh'}", "--management-url", "http://127.0.0.1:1"
    with launched.Launched(tmp_path / "out", "workers.doctor", *urls, *control, given={"PYTHONPATH": str(ROOT)}) as run:
        run.until(begun.exists)
        for check in ("settings", "broker version", "publishing"):
            assert run.output.count(check) == 1, run.output
        assert "alarms" not in run.output
        go.touch()
        assert run.wait() == 0, run.output
    assert "alarms" in run.output and run.output.count("broker version") == 1
    assert run.output.splitlines()[-1].startswith("a run would work")


def test_a_broker_that_is_down_and_a_wrong_setting_are_errors(servers: Servers) -> None:
    status, found = doctor("--broker-url", "amqp://u:hidden@127.0.0.1:1//", "--redis-url", servers.redis_url, "actrs=3")
    assert status == 2
    assert "did you mean actors" in found["settings"]["found"]
    assert "nothing listens there" in found["servers"]["found"]
    assert "hidden" not in json.dumps(found)


def test_a_launcher_refuses_servers_that_block_publishers(own_servers: Servers, tmp_path: Path, run_name: str) -> None:
    said: list[str] = []
    quick(own_servers, run_name, tmp_path, said.append, league=True)
    with redis.Redis.from_url(own_servers.redis_url) as client:
        (skew,) = clocks.read(client, run_name).values()
    assert abs(skew) < SKEW_SEEN
    brokers.control(own_servers, "set_vm_memory_high_watermark", "0.0001")
    try:
        with pytest.raises(BrokerError, match=r"^publishing: .*blocks publishers.*\n.*so the run would not work"):
            quick(own_servers, run_name, tmp_path, said.append)
    finally:
        brokers.control(own_servers, "set_vm_memory_high_watermark", "0.6")


def test_missing_permissions_of_a_user_are_named(
    servers: Servers, run_name: str, rabbitmqctl: Callable[..., list[str]]
) -> None:
    brokers.control(servers, "add_user", run_name, "secret")
    url = f"amqp://{run_name}:secret@{servers.broker_url.partition('@')[2]}"
    try:
        brokers.control(servers, "set_permissions", run_name, r"^warren\.", r"^warren\.", r"^warren\.")
        assert over_amqp(url, Topology(run_name)).refused == ("publish to the default exchange",)
        brokers.control(servers, "set_permissions", run_name, r"^other\.", ".*", ".*")
        assert "declare queues and exchanges" in over_amqp(url, Topology(run_name)).refused
        assert not [line for line in rabbitmqctl("list_queues", "name") if ".probe." in line]
    finally:
        brokers.control(servers, "delete_user", run_name)


def test_the_embedded_server_is_named_as_a_redis_broker(embedded: Servers, tmp_path: Path, run_name: str) -> None:
    said: list[str] = []
    quick(embedded, run_name, tmp_path, said.append)
    assert any("Redis is the broker" in line for line in said)
