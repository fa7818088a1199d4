"""A finished role stays idle where its end would restart its container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.waiting import PATIENCE, until

from workers.servers import Servers

ROOT = Path(__file__).resolve().parents[3]
DONE = "def run(config): return 0"
STOPPED = """
def run(config):
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    print("ready", flush=True)
    stop.wait()
    return 0
"""
FAILED = "def run(config): return 1"
Start = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(run: str, policy: str) -> subprocess.Popen[str]:
        code = f"import signal, threading\nfrom workers.config.command_line import role\n{run}\nrole('actor', run)()"
        environment = {**os.environ, "WARREN_RESTART": policy, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["unless-stopped", "always"])
def test_finished_role_stays_idle_until_it_is_stopped(start: Start, policy: str) -> None:
    process = start(DONE, policy)
    until(lambda: psutil.Process(process.pid).name() == "sleep", "the idle process")
    process.terminate()
    assert process.wait(PATIENCE) == -signal.SIGTERM


@pytest.mark.parametrize("policy", ["no", "on-failure:5", ""])
def test_finished_role_ends_where_its_container_would_not_restart(start: Start, policy: str) -> None:
    assert start(DONE, policy).wait(PATIENCE) == 0


def test_role_that_is_told_to_stop_ends(start: Start) -> None:
    process = start(STOPPED, "unless-stopped")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_celery_worker_that_is_told_to_stop_ends(servers: Servers, run_name: str, tmp_path: Path) -> None:
    settings = f"run={run_name}", "trial=t", f"folder={tmp_path}", "league=kuhn"
    environment = {**os.environ, **servers.environment(), "WARREN_RESTART": "unless-stopped"}
    command, log = [sys.executable, "-m", "workers.league", *settings], tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen(command, env=environment, cwd=ROOT, stderr=stream) as process:
        try:
            until(lambda: "ready." in log.read_text(), "the worker")
            process.terminate()
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.kill()


def test_failed_role_ends_to_be_started_again(start: Start) -> None:
    assert start(FAILED, "unless-stopped").wait(PATIENCE) == 1
