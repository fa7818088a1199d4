"""A run that lasts while servers die: `python -m benchmarks.endurance --minutes 30`.

Streaming CartPole, two learners and four actors over two hosts (network namespaces of this machine), queues of type
quorum on a RabbitMQ cluster of three nodes, Redis with a replica and three sentinels. After a quarter of the time the
node to which clients are connected is killed, and brought back a tenth later. After half of the time Redis's master is
killed; it comes back as the replica of the one that took over. At the end: whether every segment is accounted for and
no confirmed one is lost, and MB a minute that each process grew, by a line through the second half.

This takes root (for namespaces), RabbitMQ and Redis. Exit status 1 if something is lost. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.apparatus.hosts_on_a_switch import Host, joined, lacking
from benchmarks.apparatus.rabbitmq_cluster import Cluster
from benchmarks.apparatus.redis_sentinels import Sentinels
from benchmarks.apparatus.report import finish
from workers.learning.metrics import read_metrics
from workers.runtime.segment_ledger import REASONS
from workers.servers import Machine

KILL_NODE, BRING_NODE_BACK, KILL_REDIS, BRING_REDIS_BACK = 0.25, 0.35, 0.5, 0.6  # shares of the time
FIRST_UPDATE = 120.0  # s within which training has to begin
ENDS_WITHIN = 120.0  # s
LOOK_EVERY = 2.0  # s
FLAT = 1.0  # MB a minute
SETTINGS = (
    "hosts={master: {learners: 1, actors: 2}, box-2: {learners: 1, actors: 2}}", "sampling=streaming", "learners=2",
    "env=cartpole", "env.num_envs=32", "env.goal=null", "total_steps=1000000000000", "algorithm.learning_rate=1e-4",
    "checkpoint_every=10", "project=endurance", "trial=run",
)  # fmt: skip


def main() -> int:
    """Run, print JSON; return 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of training, from the first update on")
    parser.add_argument("--folder", type=Path, help="for the run, its logs and those of the servers; kept")
    given = parser.parse_args()
    rabbitmq, redis = Machine().rabbitmq(), Machine().redis()
    if why := lacking() or (None if rabbitmq and redis else "no rabbitmq-server, or no redis-server"):
        sys.exit(f"endurance: {why}")
    assert rabbitmq is not None and redis is not None
    with tempfile.TemporaryDirectory(prefix="warren-endurance-") as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        with joined(("servers", "master", "box-2"), 0.0) as hosts:
            sentinels = Sentinels(redis, folder, hosts[0].address)
            try:
                cluster = Cluster(rabbitmq, folder, address=hosts[0].address)
                try:
                    figures = endure(folder, hosts[1:], cluster, sentinels, 60 * given.minutes)
                finally:
                    cluster.stop()
            finally:
                sentinels.stop()
    finish("endurance", {"minutes": given.minutes, **figures})
    return 0 if figures["adds_up"] and figures["segments"]["lost"] == 0 else 1


def endure(
    folder: Path, hosts: Sequence[Host], cluster: Cluster, sentinels: Sentinels, seconds: float
) -> dict[str, Any]:
    """Train for `seconds` while servers are killed, stop, and return what became of the run."""
    environment = {
        **os.environ, "WARREN_BROKER_URL": cluster.url, "WARREN_REDIS_URL": sentinels.url, "WARREN_QUEUES": "quorum",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    run = folder / "endurance" / "run"
    try:
        for host in hosts:
            words = [*SETTINGS, f"folder={folder}"] if host is hosts[0] else [f"folder={folder / host.name}"]
            line = [sys.executable, "-m", "workers.train", "run=endurance", f"host={host.name}", *words]
            with (folder / f"{host.name}.log").open("wb") as log:
                command = host.command(line)
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        _wait_for_updates(run, started[0], folder)
        memory = Memory()
        _kill_servers(run, started[0], cluster, sentinels, seconds)
        memory.stop()
        started[0].send_signal(signal.SIGINT)
        ended = [process.wait(ENDS_WITHIN) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
                process.wait(ENDS_WITHIN)
    for host in hosts:
        print(f"--- {host.name}:\n{(folder / f'{host.name}.log').read_text()}", flush=True)
    segments = json.loads((run / "segments.json").read_text())
    points = read_metrics(run)
    gone = sum(segments[name] for name in ("learned", *REASONS, "in_flight"))
    slopes = memory.slopes()
    printed = "".join((folder / f"{host.name}.log").read_text() for host in hosts)
    return {
        "adds_up": segments["made"] == gone,
        "segments": segments,
        "updates": points[-1]["updates"] if "updates" in points[-1] else len(points),
        "steps": points[-1]["steps"],
        "longest_without_update_s": round(max(np.diff([point["time"] for point in points]), default=0.0), 1),
        "restarted": printed.count("restarting "),
        "exit_status": ended,
        "mb_a_minute": slopes,
        "grew": {name: slope for name, slope in slopes.items() if slope > FLAT},
    }


def _wait_for_updates(run: Path, leader: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + FIRST_UPDATE
    while not _updates(run):
        if leader.poll() is not None or time.monotonic() > until:
            sys.exit(f"training did not begin:\n{(folder / 'master.log').read_text()}")
        time.sleep(0.5)


def _updates(run: Path) -> int:
    try:
        return len(read_metrics(run))
    except OSError:
        return 0


def _kill_servers(
    run: Path, leader: subprocess.Popen[bytes], cluster: Cluster, sentinels: Sentinels, seconds: float
) -> None:
    """Kill servers and bring them back, each at a share of the run's time."""
    began = time.monotonic()
    for share, what, action in (
        (KILL_NODE, "RabbitMQ's first node is killed", lambda: cluster.kill(0)),
        (BRING_NODE_BACK, "RabbitMQ's first node is started again", lambda: cluster.start_again(0)),
        (KILL_REDIS, "Redis's master is killed", sentinels.master.kill),
        (BRING_REDIS_BACK, "Redis's first master is started again", sentinels.master.start_again),
        (1.0, "the run is stopped", lambda: None),
    ):
        while time.monotonic() < began + share * seconds:
            if leader.poll() is not None:
                raise RuntimeError(f"the run ended with status {leader.returncode} before that")
            time.sleep(0.5)
        print(f"{time.monotonic() - began:.0f} s, {_updates(run):,} updates: {what}", flush=True)
        action()


class Memory:
    """Resident memory of all processes that this program started, while the run goes on."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)  # process -> (s, MB)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._ended.set()
        self._thread.join()

    def slopes(self) -> dict[str, float]:
        """Return process -> MB a minute, by a line through the second half; of processes that lived all the time."""
        if not self._seen:
            return {}
        moments = [moment for looks in self._seen.values() for moment, _ in looks]
        half = (min(moments) + max(moments)) / 2
        found = {}
        for name, looks in sorted(self._seen.items()):
            late = [(moment / 60, mb) for moment, mb in looks if moment >= half]
            if len(late) > 2 and late[0][0] * 60 < half + 3 * LOOK_EVERY:
                found[name] = round(float(np.polyfit(*np.array(late).T, 1)[0]), 3)
        return found

    def _run(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            found: dict[int, tuple[list[str], int, str, float]] = {}  # pid -> command, parent, program, MB
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error), child.oneshot():
                    mb = child.memory_info().rss / 1e6
                    found[child.pid] = child.cmdline(), child.ppid(), child.name(), mb
            guards = {parent for line, parent, *_ in found.values() if parent in found and found[parent][0] == line}
            for pid, (line, _, program, mb) in found.items():
                name = _name(pid, line, program)
                if name and pid not in guards:  # a guard has the name of the process that it guards
                    self._seen[name].append((time.monotonic(), mb))


def _name(pid: int, line: Sequence[str], program: str) -> str | None:
    """Return a name for a process, with its number, so that a restarted process has another name."""
    if program in ("beam.smp", "redis-server", "valkey-server"):
        return f"{program} {pid}"
    roles = [word.removeprefix("workers.") for word in line if word.startswith("workers.")]
    numbers = [word for word in line if word.startswith(("actor_id=", "learner_id=", "host="))]
    return " ".join([*roles, *numbers, str(pid)]) if roles else None


if __name__ == "__main__":
    raise SystemExit(main())
