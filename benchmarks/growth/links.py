"""The cost of long links: a learner and two actors on hosts of their own, with packets delayed by 0 and 50 ms.

Whole streaming runs of `workers.train` with `hosts`, servers on a fourth host. The learner waits for a fixed time each
update, as if it computed for so long, so that the rate that a run can make does not depend on the machine's other load;
environments do nothing. CartPole's sizes: segments of 64 x 128 steps, a network of 64 x 64.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.apparatus import hosts_on_a_switch
from benchmarks.apparatus.hosts_on_a_switch import Host
from benchmarks.apparatus.paced_algorithm import VARIABLE
from benchmarks.apparatus.points import Points, TimeLeft
from workers import servers
from workers.learning.metrics import read_metrics
from workers.servers.ports import free_port

APPARATUS = Path(__file__).resolve().parents[1] / "apparatus"
DELAY = 0.05  # s one way
UPDATE = 0.15  # s: CartPole's, at 109,000 steps/s
COPIES, UNROLL, ACTORS = 64, 128, 2
STALENESS = 20  # versions: 3 s of updates; with the default of 8, data from far away is dropped


def measure(
    rounds: int, time_left: TimeLeft, points: Points, seconds: float = 12.0, delay: float = DELAY
) -> dict[str, Any]:
    """Return rates with and without the delay, in turn, for as many rounds as time allows; a run takes `seconds`."""
    if why := hosts_on_a_switch.lacking():
        print(f"links: left out, {why}", flush=True)
        return {}
    found: dict[float, list[dict[str, Any]]] = {0.0: [], delay: []}
    for turn, one in ((turn, one) for turn in range(rounds) for one in found):
        name, key = f"links, round {turn + 1}, {one * 1e3:g} ms one way", {"delay": one, "turn": turn}
        measured = points.get(**key)
        if measured is None:
            if not time_left.fits(name):
                break
            with time_left.timed():
                measured = run(one, seconds, time_left.left)
            if measured is None:
                print(f"{name}: it has not ended in time", flush=True)
                break
            points.add(measured, **key)
        found[one].append(measured)
        print(f"{name}: {measured}", flush=True)
    shares = [far["steps_per_s"] / near["steps_per_s"] for near, far in zip(found[0.0], found[delay], strict=False)]
    return {
        "links_delay_ms": delay * 1e3,
        "links_rounds": len(shares),
        "links_rate_with_delay": round(statistics.median(shares), 3) if shares else None,
        "links_rate_by_round": [round(share, 3) for share in shares],
        "links_near": found[0.0],
        "links_far": found[delay],
    }


def run(delay: float, seconds: float, patience: float) -> dict[str, Any] | None:
    """Return a run's rate over the last two thirds, its data's age in versions, its account, and the learner's times.

    None if it has not ended after `patience` s.
    """
    until = time.monotonic() + patience
    names = ("servers", "learner", *(f"box-{number}" for number in range(ACTORS)))
    with tempfile.TemporaryDirectory(prefix="warren-links-") as folder, hosts_on_a_switch.joined(names, delay) as hosts:
        password, ports = secrets.token_hex(16), (free_port(), free_port())
        with servers.acquire(
            "private", folder=Path(folder) / "servers", listen=hosts[0].address, broker_port=ports[0],
            redis_port=ports[1], environment={**os.environ, "WARREN_PASSWORD": password}, say=lambda line: None,
        ):  # fmt: skip
            urls = {
                "WARREN_BROKER_URL": f"amqp://warren:{password}@{hosts[0].address}:{ports[0]}/%2F",
                "WARREN_REDIS_URL": f"redis://:{password}@{hosts[0].address}:{ports[1]}/0",
            }
            steps = int(seconds * ACTORS * COPIES * UNROLL / UPDATE)
            return _whole_run(Path(folder), hosts[1:], urls, steps, until - time.monotonic())


def _whole_run(
    folder: Path, hosts: list[Host], urls: dict[str, str], steps: int, patience: float
) -> dict[str, Any] | None:
    environment = {**os.environ, **urls, "OMP_NUM_THREADS": "1", VARIABLE: str(UPDATE)}
    starts = {host.name: {"learners": 1} if host.name == "learner" else {"actors": 1} for host in hosts}
    table = ", ".join(f"{name}: {{{key}: {n}}}" for name, each in starts.items() for key, n in each.items())
    leader = (
        f"hosts={{{table}}}", f"folder={folder}", "project=links", "trial=run", "sampling=streaming",
        f"env.id={APPARATUS / 'null_env.py'}:NullVectorEnv", f"env.num_envs={COPIES}", "env.goal=null",
        f"algorithm.name={APPARATUS / 'paced_algorithm.py'}:build", f"unroll_length={UNROLL}", f"total_steps={steps}",
        f"max_staleness={STALENESS}",
    )  # fmt: skip
    started: list[subprocess.Popen[str]] = []
    try:
        for host in hosts:
            words = leader if host is hosts[0] else (f"folder={folder / host.name}",)
            line = [sys.executable, "-m", "workers.train", "run=links", f"host={host.name}", *words]
            with (folder / f"{host.name}.log").open("w") as output:
                started.append(
                    subprocess.Popen(
                        host.command(line), env=environment, text=True, stdout=output, stderr=subprocess.STDOUT
                    )
                )
        if started[0].wait(max(0.0, patience)) != 0:
            sys.exit(f"a run failed:\n{(folder / 'learner.log').read_text()}")
    except subprocess.TimeoutExpired:
        for process in started:
            process.kill()  # its children end with it
        return None
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)
    where = folder / "links" / "run"
    outcome = json.loads((where / "outcome.json").read_text())
    points = read_metrics(where)
    last = points[-1]
    first = next(point for point in points if point["steps"] >= last["steps"] / 3)
    taken = last["training_seconds"] - first["training_seconds"]
    return {
        "steps_per_s": round((last["steps"] - first["steps"]) / taken),
        "staleness": statistics.median(point["staleness"] for point in points),
        "segments": {name: outcome["segments"][name] for name in ("made", "learned", "stale", "lost", "in_flight")},
        "learner_ms": {
            name: round(stage["us"] / 1e3, 1) for name, stage in outcome["timing"].items() if stage["us"] >= 500
        },
    }
