"""Actors that decide for env runners: `python -m benchmarks.served --peers DIR`.

Whole runs with sampling=served, through RabbitMQ and Redis, with an algorithm that does nothing: what remains is the
environments, the calls, the forward passes, and the trajectories on their way to the learner. Rates are those of the
last two thirds of a run. Parts (`--only`):

slow    512 environments of 20 ms a step over 8 env runners, like games that run elsewhere: the share of the 25,600
        steps/s that they could make; in the same round RLlib's env runners on the same environment (DIR/ray), which
        sample without a pause and do not learn either
noop    environments that do nothing: steps/s

Each round says how much of the cores the processes used, which shows what limited a rate. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from benchmarks.apparatus.jobs import Job, own_servers, train
from benchmarks.apparatus.null_env import SLOW
from benchmarks.apparatus.ratios import with_intervals
from benchmarks.apparatus.report import finish
from benchmarks.throughput.peers import Peer

HERE = Path(__file__).resolve().parent
APPARATUS = HERE / "apparatus"
PARTS = ("slow", "noop")
RUNNERS, COPIES = 8, 64  # env runners, and environments of each
UNROLL = 64
IDEAL = RUNNERS * COPIES / SLOW  # steps/s
TARGETS = {"slow_env_efficiency": 0.9, "pipeline_served": 40_000, "served_vs_rllib": 2.0}
SAMPLE_EVERY = 2.0  # s between measurements of the processes
ROLES = ("env", "actor", "learner", "train")
SERVERS = {"beam.smp": "rabbitmq", "redis-server": "redis"}


def main() -> int:
    """Run the parts, print a line per run, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="of the peers' environments: DIR/ray")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25.0, help="of a run, about")
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    figures: dict[str, Any] = {"rounds": options.rounds}
    with own_servers() as (folder, urls):
        for part in options.only or PARTS:
            figures |= globals()[part](folder, urls, options)
    for name, target in TARGETS.items():
        if figures.get(name) is not None:
            print(f"{name}: {figures[name]} (target >= {target:,})", flush=True)
    finish("served", figures)
    return 0


def slow(folder: Path, urls: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Compare the rate with the environments' own limit, and with RLlib's."""
    arguments = map(str, (RUNNERS, COPIES, UNROLL, options.seconds * 2 / 3))
    rllib = Peer("RLlib's env runners", "ray", (str(HERE / "foreign" / "rllib_served_peer.py"), *arguments))
    if missing := rllib.missing(options.peers):
        print(missing, flush=True)
    shares, ratios, taken = [], [], []
    for turn in range(options.rounds):
        rate, processors = run(folder, f"slow-{turn}", urls, "SlowVectorEnv", int(IDEAL * options.seconds))
        shares.append(rate / IDEAL)
        taken.append(processors)
        print(f"20 ms a step: {rate:,.0f} steps/s, {shares[-1]:.3f} of {IDEAL:,.0f}; cores {processors}", flush=True)
        if not missing:
            theirs = rllib.run(options.peers).steps_per_s
            ratios.append(rate / theirs)
            print(f"20 ms a step, RLlib: {theirs:,.0f} steps/s; {ratios[-1]:.2f} times that", flush=True)
    return {
        "slow_env_efficiency": round(statistics.median(shares), 3),
        "slow_env_efficiency_by_round": [round(share, 3) for share in shares],
        "slow_cores": taken,
        **(with_intervals({"served_vs_rllib": ratios}) if ratios else {"served_vs_rllib": None}),
    }


def noop(folder: Path, urls: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure environments that do nothing, with an algorithm that learns nothing."""
    rates, taken = [], []
    for turn in range(options.rounds):
        rate, processors = run(folder, f"noop-{turn}", urls, "NullVectorEnv", int(40_000 * options.seconds))
        rates.append(round(rate))
        taken.append(processors)
        print(f"no-op: {rate:,.0f} steps/s; cores {processors}", flush=True)
    return {"pipeline_served": round(statistics.median(rates)), "pipeline_by_round": rates, "pipeline_cores": taken}


def run(folder: Path, trial: str, urls: dict[str, str], env: str, steps: int) -> tuple[float, dict[str, float]]:
    """Return (steps/s, role -> cores it used) of the last two thirds of one run."""
    looked = Looked()
    job = train(
        folder,
        trial,
        (
            "sampling=served", f"env_runners={RUNNERS}", "actors=1", f"env.id={APPARATUS / 'null_env.py'}:{env}",
            f"env.num_envs={COPIES}", "env.goal=null", f"algorithm.name={APPARATUS / 'null_algorithm.py'}:build",
            f"unroll_length={UNROLL}", f"total_steps={steps}",
        ),
        urls,
    )  # fmt: skip
    return steady(job, looked)


def steady(job: Job, looked: Looked) -> tuple[float, dict[str, float]]:
    """Return the steps per second of a job's last two thirds, and the cores that its processes used."""
    looked.stop()
    last = job.points[-1]
    first = next(point for point in job.points if point["steps"] >= last["steps"] / 3)
    seconds = last["training_seconds"] - first["training_seconds"]
    if not seconds > 0:
        sys.exit(f"{len(job.points)} updates are too few to tell a rate; give it more --seconds")
    return (last["steps"] - first["steps"]) / seconds, looked.cores(first["time"], last["time"])


class Looked:
    """Processor time of this program's children, by kind, while one run goes on."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, dict[str, float]]] = []  # Unix time -> role -> s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring."""
        self._ended.set()
        self._thread.join()

    def cores(self, since: float, until: float) -> dict[str, float]:
        """Return role -> processor seconds a second between the measurements nearest to these times."""
        (began, before), (ended, after) = (
            min(self._seen, key=lambda one: abs(one[0] - moment)) for moment in (since, until)
        )
        took = {role: (after.get(role, 0.0) - before.get(role, 0.0)) / max(ended - began, 1e-9) for role in after}
        return {role: round(share, 2) for role, share in sorted(took.items()) if share >= 0.005}

    def _run(self) -> None:
        while not self._ended.is_set():
            self._seen.append((time.time(), _processor_seconds()))
            self._ended.wait(SAMPLE_EVERY)


def _processor_seconds() -> dict[str, float]:
    spent: defaultdict[str, float] = defaultdict(float)
    for child in psutil.Process().children(recursive=True):
        try:
            spent[role_of(child.name(), child.cmdline())] += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue
    return spent


def role_of(name: str, line: list[str]) -> str:
    words = " ".join(line)
    return SERVERS.get(name) or next((role for role in ROLES if f"workers.{role} " in f"{words} "), "others")


if __name__ == "__main__":
    raise SystemExit(main())
