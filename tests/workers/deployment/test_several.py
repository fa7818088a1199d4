"""Several processes behind one port: whose session is whose, and one that is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import pytest
from deployed import ROOT, run_folder
from prometheus_client.parser import text_string_to_metric_families

from workers import deploy
from workers.servers.machine import Machine

TICK = json.dumps({"observation": [0, 1, 2, 3]}).encode()
WAIT = 120.0  # s, on a machine however busy


def ask(url: str, session: str | None = None, kind: str = "", body: bytes = b"") -> tuple[int, Any, str | None]:
    """(status, the reply, where it is to be asked again) on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        if session is None:
            connection.request("GET", "/")
        else:
            connection.request("POST", "/", body, {"session": session, "step_kind": kind})
        reply = connection.getresponse()
        said = reply.read()
        return reply.status, json.loads(said or b"null"), reply.headers["location"]
    finally:
        connection.close()


def counted(address: str) -> dict[str, tuple[float, float, float]]:
    """process -> (whether it is up, its sessions, the requests that it met), as /metrics of one of them tells."""
    with urlopen(f"{address}/metrics", timeout=30) as reply:
        families = text_string_to_metric_families(reply.read().decode())
    found: dict[str, dict[str, float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        of = found.setdefault(sample.labels["process"], Counter())
        of[sample.name.removeprefix("warren_gateway_")] += sample.value
    return {name: (of["up"], of["sessions"], of["requests_total"]) for name, of in found.items()}


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(
    not (Machine().embedded_redis() or Machine().redis()), reason="no redis-server, which keeps whose session is whose"
)
def test_two_processes_share_a_port_and_each_keeps_its_sessions(tmp_path: Path) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    command = [sys.executable, "-m", deploy.__name__, f"run={tmp_path}", "gateway.port=0", "processes=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            shared, seen = f"http://127.0.0.1:{said['port']}", set[str]()
            assert said["processes"] == 2

            def both() -> bool:
                with contextlib.suppress(OSError, http.client.HTTPException):  # of the one that was killed
                    seen.add(ask(shared)[1]["address"])
                return len(seen) == 2

            until(both)
            here, there = sorted(seen)
            assert ask(here, "a", "start")[0] == 200
            assert ask(there, "a", "tick", TICK)[::2] == (307, f"{here}/")
            assert ask(there, "a", "start")[0] == 409
            assert ask(here, "a", "tick", TICK)[1]["action"] in (0, 1)
            assert ask(here, "a", "stop")[0] == 200 == ask(there, "a", "start")[0]

            assert counted(shared) == counted(here) == counted(there)
            assert sorted(counted(shared).values()) == [(1, 0, 3), (1, 1, 3)]  # `here` and `there`

            serving = [
                one for one in psutil.Process(process.pid).children() if "workers.deployment.several" in one.cmdline()
            ]
            assert len(serving) == 2
            serving[0].kill()
            seen.clear()
            until(lambda: both() and seen != {here, there})
            assert sorted(up for up, _, _ in counted(shared).values()) == [1, 1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT) == 0
            assert not any(one.is_running() for one in serving)
        finally:
            process.kill()
