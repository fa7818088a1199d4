"""Who serves what: asked of running workers, listed by the command line, and told to Flower by task events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from calling import ROOT, Calling, until

from tasks.discovery import discover


@pytest.fixture
def calling(servers, run_name: str, tmp_path: Path):
    run = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        yield run
    finally:
        run.close()


def listed(calling: Calling, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "WARREN_BROKER_URL": calling.broker_url,
        "WARREN_REDIS_URL": calling.redis_url,
        "WARREN_RUN": calling.topology.run,
        "COLUMNS": "200",
    }
    command = [sys.executable, "-m", "workers.services", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_workers_tell_what_they_serve_and_how_much_they_did_also_while_one_computes(calling):
    calling.start(2)
    busy = calling.solver.send("actor.sleep", 2.5)
    for number in range(20):
        calling.solver.call("actor.add", number)
    found = [one for one in discover(calling.app, within=1.5) if one.service == "actor.add"]
    assert {one.pid for one in found} == {process.pid for process in calling.processes}
    assert sum(one.calls for one in found) == 20
    busy.result()


def test_the_command_lists_services_as_json_and_as_a_table(calling):
    calling.start(1)
    calling.solver.call("actor.add", 1)
    done = listed(calling, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["unserved"] == []
    (add,) = [one for one in found["served"] if one["service"] == "actor.add"]
    assert add["calls"] == 1 and add["pid"] == calling.processes[0].pid
    shown = listed(calling)
    assert shown.returncode == 0 and "actor.policy_eval" in shown.stdout


def test_a_service_whose_workers_are_gone_is_listed_as_served_by_nobody(calling):
    (worker,) = calling.start(1)
    worker.terminate()
    worker.wait(15)
    done = listed(calling, "--json")
    assert done.returncode == 1
    assert "actor.add" in json.loads(done.stdout)["unserved"]


def test_the_command_says_what_it_lacks():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
    done = subprocess.run(
        [sys.executable, "-m", "workers.services"], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "WARREN_RUN" in done.stderr


def test_a_sample_of_the_calls_is_told_to_flower(calling):
    seen: list[dict[str, Any]] = []

    def told(kind: str) -> int:
        return sum(event["type"] == kind for event in seen)

    with calling.app.connection_for_read() as connection:
        receiver = calling.app.events.Receiver(connection, handlers={"*": seen.append})
        watcher = threading.Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False})
        watcher.start()
        calling.start(1, EVENT_RATE="0.1")
        until(lambda: told("worker-online"))
        for number in range(100):
            calling.solver.call("actor.add", number)
        until(lambda: told("task-succeeded") == 10)
        receiver.should_stop = True
        watcher.join(timeout=20)  # the next heartbeat of the worker wakes it
    assert told("task-received") == told("task-started") == 10
    assert {event["name"] for event in seen if event["type"] == "task-received"} == {"actor.add"}
