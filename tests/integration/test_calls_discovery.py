"""Tests of discovery: workers' answers on their services, the command that lists them, task events for Flower."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from support import launched
from support.calling import ROOT, Calling
from support.waiting import PATIENCE, until

from tasks.admin.discovery import Served, discover
from workers.ui.services import QueryResult, watch


@pytest.fixture
def calling(servers, run_name: str, tmp_path: Path):
    run = Calling(servers.broker_url, servers.redis_url, run_name, tmp_path)
    try:
        yield run
    finally:
        run.close()


def environment_of(calling: Calling, **more: str) -> dict[str, str]:
    """Return the environment variables that tell a process the run and its servers."""
    urls = {"WARREN_BROKER_URL": calling.broker_url, "WARREN_REDIS_URL": calling.redis_url}
    return {**urls, "WARREN_RUN": calling.topology.run, "PYTHONPATH": str(ROOT), **more}


def listed(calling: Calling, *options: str) -> subprocess.CompletedProcess[str]:
    return launched.command("workers.services", *options, given=environment_of(calling, COLUMNS="200"))


def test_workers_report_services_and_counts_even_while_one_is_busy(calling):
    calling.start(2)
    busy = calling.solver.send("actor.hold", "busy")
    until(lambda: calling.ran("busy") == 1)
    # Some of these wait in the busy worker.
    handles = [calling.solver.send("actor.add", number) for number in range(20)]

    def told() -> list[Served]:
        """Return both workers' answers on the service, or none: on a busy machine, one may be late."""
        found = [one for one in discover(calling.app, within=1.5) if one.service == "actor.add"]
        return found if len(found) == 2 else []

    found = until(told)
    assert {one.pid for one in found} == {process.pid for process in calling.processes}
    assert not busy.done(), "the busy worker's call had ended"
    calling.release("busy")
    busy.result()
    assert [handle.result() for handle in handles] == list(range(1, 21))
    until(lambda: sum(one.calls for one in told()) == 20)


def test_the_command_lists_services_as_json_and_as_a_table(calling):
    calling.start(1)
    calling.solver.call("actor.add", 1)

    def served(*options: str) -> subprocess.CompletedProcess[str] | None:
        """Return the finished command; None if a worker answered too late, as on a busy machine."""
        done = listed(calling, *options)
        return done if done.returncode == 0 else None

    found = json.loads(until(lambda: served("--json")).stdout)
    assert found["unserved"] == []
    (add,) = [one for one in found["served"] if one["service"] == "actor.add"]
    assert add["calls"] == 1 and add["pid"] == calling.processes[0].pid
    assert "actor.policy_eval" in until(served).stdout


def test_a_service_whose_workers_are_gone_is_listed_as_served_by_nobody(calling):
    (worker,) = calling.start(1)
    worker.terminate()
    worker.wait(PATIENCE)
    done = listed(calling, "--json")
    assert done.returncode == 1
    assert "actor.add" in json.loads(done.stdout)["unserved"]


def test_the_command_names_a_missing_variable():
    done = launched.command("workers.services")
    assert done.returncode == 2 and "WARREN_RUN" in done.stderr


@pytest.mark.parametrize("option", ["--timeout", "--watch"])
@pytest.mark.parametrize("given", ["nan", "-1"])
def test_a_time_that_is_none_is_refused(option: str, given: str):
    done = launched.command("workers.services", f"{option}={given}", "--run", "any")
    assert done.returncode == 2 and f"{option}: {given} is not within 0 and 86,400; use a number" in done.stderr


def test_flower_gets_events_of_a_sample_of_calls(calling):
    seen: list[dict[str, Any]] = []

    def told(kind: str) -> int:
        return sum(event["type"] == kind for event in seen)

    with calling.app.connection_for_read() as connection:
        receiver = calling.app.events.Receiver(connection, handlers={"*": seen.append})
        watcher = threading.Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False}, daemon=True)
        listening = threading.Event()
        receiver.on_consume_ready = lambda *_, **__: listening.set()
        watcher.start()
        assert listening.wait(PATIENCE)
        calling.start(1, WARREN_EVENT_RATE="0.1")
        until(lambda: told("worker-online"))
        for number in range(100):
            calling.solver.call("actor.add", number)
        until(lambda: told("task-succeeded") == 10)
        receiver.should_stop = True
        watcher.join(PATIENCE)  # the worker's next heartbeat wakes it
    assert told("task-received") == told("task-started") == 10
    assert {event["name"] for event in seen if event["type"] == "task-received"} == {"actor.add"}


class Terminal:
    """`python -m workers.services` on a terminal of its own, whose keys and screen the test controls."""

    def __init__(self, calling: Calling, *options: str) -> None:
        self._keys, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 150, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_A_TERMINAL, *options],
            **dict.fromkeys(("stdin", "stdout", "stderr"), screen),
            cwd=ROOT,
            env=os.environ | environment_of(calling, TERM="xterm-256color", LINES="60", COLUMNS="150"),
            start_new_session=True,
        )
        os.close(screen)
        self.shown = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def shows(self, wanted: Callable[[str], Any]) -> None:
        """Wait until the output so far satisfies `wanted`."""
        until(lambda: wanted(self.shown) or self.process.poll() is not None)
        assert wanted(self.shown), self.shown

    def press_ctrl_c(self) -> int:
        """Press Ctrl-C; return the exit status."""
        os.write(self._keys, b"\x03")
        status = self.process.wait(timeout=PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end may be closed
            while data := os.read(self._keys, 65536):
                self.shown += data.decode(errors="replace")


# Makes the terminal the controlling one, so that Ctrl-C becomes a signal, then runs the command.
ON_A_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from workers.ui.services import main
sys.exit(main())
"""


def test_watching_redraws_one_table_until_ctrl_c(calling):
    calling.start(1)
    calling.solver.call("actor.add", 1)
    watching = Terminal(calling, "--watch", "0.5")
    watching.shows(lambda shown: shown.count("actor.policy_eval") >= 2)
    for number in range(41):
        calling.solver.call("actor.add", number)
    watching.shows(lambda shown: re.search(r"actor\.add .* 42 ", shown))
    assert watching.press_ctrl_c() == 0
    assert "Traceback" not in watching.shown and "\x1b[2J" not in watching.shown, "it was cleared: it flickers"
    assert watching.shown.count("\x1b[?25l") == watching.shown.count("\x1b[?25h") == 1, "the cursor was not shown again"
    rows = watching.shown.count("actor.policy_eval") - 1
    assert watching.shown.count("\x1b[1A") > rows * 10, "a table was drawn below another, not over it"


def test_watching_in_json_prints_a_line_per_query_until_the_reader_ends(calling):
    calling.start(1)
    command = [sys.executable, "-m", "workers.services", "--watch", "0.2", "--json", "--timeout", "0.3"]
    environment, pipes = os.environ | environment_of(calling), dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    watching = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)

    def report_has_the_services() -> bool:
        """Return whether the next line has both services: on a busy machine, the worker may answer too late for one."""
        return {one["service"] for one in json.loads(watching.stdout.readline())["served"]} >= {
            "actor.add",
            "actor.infer",
        }

    for _ in range(2):
        until(report_has_the_services)
    watching.stdout.close()
    assert watching.wait(timeout=PATIENCE) == 0
    assert watching.stderr.read() == ""


def test_watching_goes_on_while_a_server_is_away():
    reports: list[Any] = [
        QueryResult([], []),
        OperationalError("refused"),
        QueryResult([], ["actor.add"]),
        KeyboardInterrupt(),
    ]
    shown: list[Any] = []

    def query() -> QueryResult:
        found = reports.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    assert watch(query, shown.append, shown.append, every=0.0) == 0
    assert shown == [QueryResult([], []), "cannot query: refused", QueryResult([], ["actor.add"])]
