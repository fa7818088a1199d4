"""Several processes behind one port: owners of sessions, and a process that is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import launched
from support.deployed import run_folder

from workers import deploy
from workers.servers.machine import Machine

TICK = json.dumps({"observation": [0, 1, 2, 3]}).encode()
WAIT = 120.0  # s, enough for a busy machine


def ask(url: str, session: str | None = None, kind: str = "", body: bytes = b"") -> tuple[int, Any, str | None]:
    """Return status, reply and redirect of a request on a new connection."""
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
    """Return (up, sessions, requests) by process, from /metrics at `address`."""
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


needs_redis = pytest.mark.skipif(
    not (Machine().embedded_redis() or Machine().redis()), reason="no redis-server, which keeps whose session is whose"
)


@contextlib.contextmanager
def deployed(folder: Path, processes: int, *settings: str) -> Iterator[tuple[launched.Process, str]]:
    """Yield the command and the URL that its processes share."""
    run_folder(folder, {"hidden_sizes": [8]}, env="CartPole-v1")
    words = (f"run={folder}", "gateway.port=0", f"processes={processes}", *settings)
    with launched.Launched(folder / "log", deploy.__name__, *words) as command:
        try:
            said = json.loads(command.until(lambda: re.search(r"^{.*}$", command.output, re.MULTILINE))[0])
            assert said["processes"] == processes
            yield command.process, f"http://127.0.0.1:{said['port']}"
        finally:
            command.process.kill()


def serving(process: launched.Process) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # killed, and perhaps a zombie
            if "workers.deployment.several" in one.cmdline():
                found.append(one)
    return found


@pytest.mark.slow
@needs_redis
def test_two_processes_share_a_port_and_each_keeps_its_sessions(tmp_path: Path) -> None:
    with deployed(tmp_path, 2) as (process, shared):
        seen = set[str]()

        def both() -> bool:
            with contextlib.suppress(OSError, http.client.HTTPException):  # raised for the killed process
                seen.add(ask(shared)[1]["address"])
            return len(seen) == 2

        until(both)
        here, there = sorted(seen)
        assert ask(here, "a", "start")[0] == 200
        assert ask(there, "a", "tick", TICK)[::2] == (307, f"{here}/")
        assert ask(there, "a", "start")[0] == 409
        assert ask(here, "a", "tick", TICK)[1]["action"] in (0, 1)
        assert ask(here, "a", "stop")[0] == 200 == ask(there, "a", "start")[0]

        # A process that does not answer in time is reported as down.
        until(lambda: counted(shared) == counted(here) == counted(there))
        until(lambda: sorted(counted(shared).values()) == [(1, 0, 3), (1, 1, 3)])  # `here` and `there`

        children = psutil.Process(process.pid).children(recursive=True)
        next(one for one in children if one.name() in ("redis-server", "valkey-server")).kill()
        assert ask(here, "b", "auto", TICK)[0] == 200

        def redis_is_back() -> bool:
            assert ask(here, "b", "tick", TICK)[0] == 200
            return ask(there, "b", "tick", TICK)[0] == 307

        until(redis_is_back)
        parts = serving(process)
        assert len(parts) == 2
        parts[0].kill()
        seen.clear()
        until(lambda: both() and seen != {here, there})
        until(lambda: sorted(up for up, _, _ in counted(shared).values()) == [1, 1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
        assert not any(one.is_running() for one in parts)


class Client:
    """Opens a connection per request, follows redirects, and asks again until it is answered."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.refused_for = 0.0  # s, the longest of any request

    def tick(self, session: str) -> None:
        """Ask until answered. A refusal lasts from the first refused try to the last: slow answers do not count."""
        refused_at = None
        while True:
            sent = time.monotonic()
            try:
                status, _, location = ask(self._url, session, "auto", TICK)
                if location is not None:
                    status, _, location = ask(location, session, "auto", TICK)
            except (OSError, http.client.HTTPException):
                status = 0
            if status == 200:
                return
            if refused_at is None:
                refused_at = time.monotonic()
            else:
                self.refused_for = max(self.refused_for, sent - refused_at)
                assert sent - refused_at < WAIT
            time.sleep(0.02)


@pytest.mark.slow
@needs_redis
def test_no_request_is_refused_for_5_s_when_a_process_is_killed(tmp_path: Path) -> None:
    with deployed(tmp_path, 4) as (process, shared):
        port, client, sessions = urlsplit(shared).port, Client(shared), list[str]()
        victim = serving(process)[0]
        listening = {one.laddr.port for one in victim.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        (own,) = listening - {port}

        def held() -> bool:
            """Open eight more sessions; return whether the victim holds any."""
            for _ in range(8):
                sessions.append(f"game-{len(sessions)}")
                client.tick(sessions[-1])
            return ask(f"http://127.0.0.1:{own}")[1]["sessions"] > 0

        until(held)
        for session in sessions:  # at whichever process accepts the connection
            client.tick(session)
        assert client.refused_for == 0.0
        victim.kill()
        for _ in range(3):
            for session in sessions:
                client.tick(session)
        assert client.refused_for < 5.0

        def replaced() -> bool:
            client.tick(sessions[0])
            return len(serving(process)) == 4 and [up for up, _, _ in counted(shared).values()] == [1] * 4

        until(replaced)
        for session in sessions:
            client.tick(session)
        assert client.refused_for < 5.0
