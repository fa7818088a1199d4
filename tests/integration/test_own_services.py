"""Tests of a run file of a user's services and environments: to its end, with a kill, Ctrl-C and two hosts."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import redis
from support.own_run import FILE, OwnRun, write
from support.waiting import until

from workers.servers import Servers

HOSTS = (
    FILE.replace("num: 2, ", "")
    + """
hosts:
  master: {Learner: 1}
  box-2: {Adder: 2, play: 1}
"""
)


def keys(run: str, servers: Servers) -> list[str]:
    """Return the run's keys in Redis."""
    return [key.decode() for key in redis.Redis.from_url(servers.redis_url).scan_iter(match=f"warren.{run}:*")]


def test_a_run_plays_through_a_killed_service_to_its_end_and_leaves_nothing(servers, rabbitmqctl, tmp_path: Path):
    with OwnRun(write(tmp_path), servers) as run:
        run.until(lambda: "played 1" in run.logged("play-0"))
        (learner,) = [one for one in run.processes("workers.serve") if "Learner-0" in one.cmdline()]
        for adder in run.processes("workers.serve"):
            if adder != learner:
                adder.kill()  # both: a restarted one must get weights fired earlier
        run.until(lambda: "restarting Adder-0 (1 of 5)" in run.output and "restarting Adder-1 (1 of 5)" in run.output)
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.output
        name = run.name
    assert "env 0 of 1 answered by" in run.logged("play-0")
    assert "all environments are done" in run.output
    assert keys(name, servers) == []
    for kind in ("list_queues", "list_exchanges"):  # the broker removes exclusive queues a moment later
        until(lambda kind=kind: not [left for left in rabbitmqctl(kind, "name") if left.startswith(f"warren.{name}")])


def test_ctrl_c_stops_all_hosts_of_a_run_and_leaves_nothing(servers, tmp_path: Path):
    more = "services: [{name: Adder, path: services.py, kwargs: {plus: 10}}]\njoin: stopped"
    with OwnRun(write(tmp_path), servers, "Adder.num=1", "run=stopped") as run:
        run.until(lambda: "played 20" in run.logged("play-0"))
        with OwnRun(write(tmp_path, more, "more.yaml"), servers, "--host", "box-3", label="more") as joined:
            joined.until(lambda: "serves adder.add" in joined.logged("Adder-0-box-3"))
            run.until(lambda: "host box-3 has joined" in run.output)
            processes = [*run.processes(), *joined.processes()]
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130, run.output
            assert joined.wait() == 130, joined.output
    assert len(processes) == 4 and not any(process.is_running() for process in processes)
    assert keys("stopped", servers) == []


def test_two_hosts_start_their_shares_of_one_file_and_end_together(servers, tmp_path: Path, run_name: str):
    file = write(tmp_path, HOSTS)
    (tmp_path / "go").touch()
    with OwnRun(file, servers, f"run={run_name}", "--host", "box-2", label="box-2") as box:
        box.until(lambda: f"waiting for run {run_name}, which master has to start" in box.output)
        with OwnRun(file, servers, f"run={run_name}", "--host", "master", label="master") as master:
            assert master.wait() == 0, master.output + box.output
            assert box.wait() == 0, box.output
    assert "env 0 of 1 answered by" in box.logged("play-0")
    assert master.logged("Learner-0") and not master.logged("Adder-0") and box.logged("Adder-1")
    assert keys(run_name, servers) == []


def test_a_host_that_gives_up_ends_the_run_everywhere(servers, tmp_path: Path, run_name: str):
    file = write(tmp_path, HOSTS)
    (tmp_path / "play.py").write_text("raise RuntimeError('the game has crashed')")
    arguments = (f"run={run_name}", "restarts=0", "--host")
    with (
        OwnRun(file, servers, *arguments, "master", label="master") as master,
        OwnRun(file, servers, *arguments, "box-2", label="box-2") as box,
    ):
        assert master.wait() == 1 and box.wait() == 1, master.output + box.output
    assert "host box-2 gave up: play-0 ended with status 1" in master.output
    assert "the game has crashed" in master.output
    assert keys(run_name, servers) == []


SEED = """
from tasks.service import register

class Worker(object):
    @register(response=True)
    def func(self, x):
        return x + 1
"""

SCRIPT = """
from tasks.solver import Solver
from warren.errors import NoSuchService

print("answer", Solver().retrive("worker", "func", 41))
try:
    Solver(patience=3.0).call("worker.absent")
except NoSuchService as error:
    print("unknown:", error)
"""


def test_a_plain_script_calls_a_service_of_a_class_that_derives_from_nothing(servers, tmp_path: Path):
    file = write(tmp_path, "services: [{name: Worker, path: seed.py}]\nenvs: [{name: play, path: play.py}]")
    (tmp_path / "seed.py").write_text(SEED)
    (tmp_path / "script.py").write_text(SCRIPT)
    waits = (
        "import time\nfrom pathlib import Path\nwhile not Path(__file__).with_name('go').exists(): time.sleep(0.1)\n"
    )
    (tmp_path / "play.py").write_text(SCRIPT + waits)
    with OwnRun(file, servers) as run:
        run.until(lambda: "unknown: " in run.logged("play-0"))  # much shorter than a restart may take
        (folder,) = (path.parent for path in run.folder.glob("*/*/run.yaml"))
        python, clean = shlex.quote(sys.executable), "unset WARREN_RUN WARREN_BROKER_URL WARREN_REDIS_URL;"
        entered = f'{clean} eval "$({python} -m workers.servers --run {folder} env)"; {python} {tmp_path}/script.py'
        done = subprocess.run(["sh", "-c", entered], capture_output=True, text=True, check=False)
        (tmp_path / "go").touch()
        assert run.wait() == 0, run.output
    for printed in (done.stdout, run.logged("play-0")):
        assert "answer 42" in printed, done.stderr
        assert "worker.absent" in printed.partition("unknown: ")[2]
