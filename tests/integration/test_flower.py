"""Test of Flower beside a run: it shows the run's workers and tasks, listens on loopback alone, ends with the run."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from support.training_run import TrainingRun

from workers.servers import Servers
from workers.servers.ports import free_port, listens


def ask(port: int, path: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
        return None


@pytest.mark.slow
def test_flower_shows_the_workers_and_tasks_of_a_run_and_ends_with_it(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Flower's API is closed unless this variable or a login opens it.
    monkeypatch.setenv("FLOWER_UNAUTHENTICATED_API", "true")
    port = free_port()
    with TrainingRun(
        *(tmp_path, "env.goal=null", "total_steps=1000000000", f"flower_port={port}"),
        broker_url=servers.broker_url,
        redis_url=servers.redis_url,
    ) as run:
        assert run.until(lambda: f"Flower at http://127.0.0.1:{port}" in run.output)

        def names() -> set[str]:
            return {name.partition("@")[0] for name in ask(port, "/api/workers?refresh=1") or {}}

        run.until(lambda: names() == {"learner", "actor-0", "actor-1"})
        done = run.until(lambda: ask(port, "/api/tasks?state=SUCCESS&taskname=actor.rollout&limit=5"))
        assert {task["name"] for task in done.values()} == {"actor.rollout"}
        assert {task["worker"].partition("@")[0] for task in done.values()} <= {"actor-0", "actor-1"}
        queues = run.until(lambda: (ask(port, "/api/queues/length") or {}).get("active_queues"))
        assert {queue["name"].rpartition(".")[2] for queue in queues} >= {"main"}
        assert all(queue["messages"] >= 0 for queue in queues)
        flower = run.role("flower")
        bound = {c.laddr.ip for c in flower.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        assert bound == {"127.0.0.1"}
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert not flower.is_running()
    assert not listens(port)
    password = urlsplit(servers.broker_url).password
    assert password
    for log in (run.log, *(run.folder / "logs").iterdir()):
        assert password not in log.read_text(), f"{log.name} shows the broker's password"
    assert "Traceback" not in run.output
