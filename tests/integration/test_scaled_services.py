"""Tests of the command that changes the processes of a live run of services and environments, on real servers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import launched
from support.own_run import HOSTLESS, OwnRun, write
from support.waiting import until

from workers.servers import Servers

SLOW = """
services: [{name: Slow, path: slow.py, num: 2}]
envs: [{name: play, path: play.py, num: 2}]
"""
# Each call ends once the file `go` exists.
SERVICE = """
import time
from pathlib import Path
from tasks.service import Worker, service

class Slow(Worker):
    def __init__(self, rank=0):
        self.rank = rank

    @service
    def work(self, caller):
        Path(__file__).with_name(f"begun-{caller}").write_text(str(self.rank))
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.05)
        return self.rank
"""
CALLER = """
import os
from tasks.solver import Solver

print("answered by", Solver().options(deadline=300.0).call("slow.work", os.environ["WARREN_RANK"]), flush=True)
"""


def scale(run: OwnRun, servers: Servers, *counts: str) -> subprocess.CompletedProcess[str]:
    urls = ("--broker-url", servers.broker_url, "--redis-url", servers.redis_url)
    return launched.command("workers.scale", "--run", run.name, *urls, *counts)


def test_services_and_environments_start_and_leave_while_their_run_goes_on(servers: Servers, tmp_path: Path) -> None:
    with OwnRun(write(tmp_path, HOSTLESS), servers) as run:
        run.until(lambda: "played 20" in run.logged("play-0"))
        more = scale(run, servers, "Adder=+1", "play=2")
        assert more.stdout.splitlines() == ["started Adder-1", "started play-1", "Adder=2, Learner=1, play=2"], (
            more.stderr
        )
        run.until(lambda: "serves adder.add" in run.logged("Adder-1") and "played 20" in run.logged("play-1"))
        run.until(lambda: "Adder 2 of 2 alive; Learner" in run.output.replace(",", ";"))
        assert scale(run, servers, "play=-1").stdout.splitlines()[0] == "told play-1 to finish and leave"
        run.until(lambda: "play-1 has left\n" in run.output)
        assert scale(run, servers, "play=+1").stdout.splitlines()[0] == "started play-2", "a number is not used again"
        run.until(lambda: "played 20" in run.logged("play-2"))
        processes = run.processes()
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.output
    assert len(processes) == 5 and not any(process.is_running() for process in processes)
    for name in ("play-0", "play-2"):
        assert "answered by" in run.logged(name), "the run ends only when all environments are done"
    assert "0, 1]" in run.logged("play-2")


def test_a_request_for_services_that_cannot_be_met_changes_nothing(servers: Servers, tmp_path: Path) -> None:
    with OwnRun(write(tmp_path, HOSTLESS), servers) as run:
        run.until(lambda: "played 1" in run.logged("play-0"))
        for count, message in (
            ("Adderr=+1", "'Adderr' does not exist; did you mean Adder?"),
            ("x=+1", "'x' does not exist; known: Adder, Learner, play"),
            ("Adder=some", "Adder=some: write it as actors=4, actors=+1 or actors=-1"),
            ("Learner=0", f"Learner: 0: at least 1 has to stay; python -m workers.runs stop {run.name} ends the run"),
        ):
            refused = scale(run, servers, count)
            assert refused.returncode == 2 and message in refused.stderr, refused.stderr
            assert "Traceback" not in refused.stderr
        assert scale(run, servers).stdout == "Adder=1, Learner=1, play=1\n"
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.output


def test_a_service_that_is_told_to_leave_answers_the_call_that_it_has(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SERVICE)
    file = write(tmp_path, SLOW)
    (tmp_path / "play.py").write_text(CALLER)
    with OwnRun(file, servers) as run:
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
        assert {path.read_text() for path in tmp_path.glob("begun-*")} == {"0", "1"}
        assert scale(run, servers, "Slow=1").stdout.splitlines()[0] == "told Slow-1 to finish and leave"
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.output
    assert sorted(run.logged(f"play-{rank}")[-2] for rank in range(2)) == ["0", "1"]
    assert "Slow-1 has left with" not in run.output


@pytest.mark.slow
def test_the_leader_gives_its_host_a_service_that_only_another_host_had(
    servers: Servers, tmp_path: Path, run_name: str
) -> None:
    hosts = "\nhosts: {master: {Learner: 1}, box-2: {Adder: 1, play: 1}}\n"
    file = write(tmp_path, HOSTLESS + hosts)
    with (
        OwnRun(file, servers, f"run={run_name}", "--host", "box-2", label="box-2") as box,
        OwnRun(file, servers, f"run={run_name}", "--host", "master", label="master") as master,
    ):
        box.until(lambda: "played 1" in box.logged("play-0"))
        answer = scale(master, servers, "Adder=+1").stdout.splitlines()
        assert answer[0] == "started Adder-1" and "1 of the 2 Adder are other hosts'" in answer[1]
        master.until(lambda: "serves adder.add" in master.logged("Adder-1"))
        (tmp_path / "go").touch()
        assert master.wait() == 0 and box.wait() == 0, master.output + box.output
