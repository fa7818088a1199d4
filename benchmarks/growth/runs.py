"""The cost of a step for each part of a run as actors, environments, model and learners grow: whole streaming runs.

The work is the same in every run: 131,072 steps/s, in updates of 65,536 that do nothing for half a second. So the
processor time of each process can be told from the rate that a busy machine allows. A part whose cost per step grows
with the number of actors shows long before it limits the run.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.apparatus.jobs import Job, TookTooLong, own_servers, train
from benchmarks.apparatus.paced_algorithm import VARIABLE
from benchmarks.apparatus.points import Points, TimeLeft
from benchmarks.served import SERVERS, role_of

APPARATUS = Path(__file__).resolve().parents[1] / "apparatus"
STEPS, UPDATE = 65_536, 0.5  # of an update: steps, and s
SEGMENT = 2048  # steps, so that the number of messages does not depend on the number of environments
COPIES, ACTORS = 64, 2
PARTS = ("actors", "environments", "model", "learners")
SIZES: Mapping[str, Sequence[float]] = {
    "actors": (1, 4, 16, 32),
    "environments": (16, 64, 256, 1024),
    "model": (0.1, 1, 10, 100),  # MB
    "learners": (1, 2, 4),
}
LOOK_EVERY = 1.0  # s
GREW = 1.25  # ratio from which a cost counts as grown


@dataclass(frozen=True)
class Cost:
    """The figures of one run."""

    us_a_step: Mapping[str, float]  # role -> us of a core
    resident_mb: Mapping[str, float]  # role -> the most of one process
    rate: float  # steps/s
    timing: Mapping[str, Any]  # the learner's, by stage
    cores: float  # cores of this machine that other programs left


def measure(part: str, time_left: TimeLeft, points: Points, rounds: int, of_a_run: float = 8.0) -> dict[str, Any]:
    """Return medians over as many rounds as time allows; a run plays for about `of_a_run` s."""
    found = defaultdict[float, list[Cost]](list)
    with own_servers() as (folder, urls):
        for turn, size in ((turn, size) for turn in range(rounds) for size in SIZES[part]):
            name = f"{part} {size:g}, round {turn + 1}"
            given = (f"{part}-{size:g}-{turn}", part, size, folder, urls, of_a_run)
            cost = point(name, partial(run, *given), time_left, points, part=part, size=size, turn=turn)
            if cost is None:
                break
            found[size].append(cost)
            shown = {role: round(us, 2) for role, us in cost.us_a_step.items()}
            print(f"{name}: {cost.rate:,.0f} steps/s; us a step {shown}; {cost.cores:.2f} cores", flush=True)
    figures: dict[str, Any] = {
        "rounds": {f"{size:g}": len(found[size]) for size in found},
        "us_a_step": {f"{size:g}": _medians(found[size], lambda cost: cost.us_a_step) for size in found},
        "resident_mb": {f"{size:g}": _medians(found[size], lambda cost: cost.resident_mb, 0) for size in found},
        "steps_per_s": {f"{size:g}": round(statistics.median(one.rate for one in found[size])) for size in found},
        "cores": {f"{size:g}": round(statistics.median(one.cores for one in found[size]), 2) for size in found},
    }
    # All runs use the same servers, which keep the memory of earlier ones.
    own = {
        size: {role: mb for role, mb in of_roles.items() if role not in SERVERS.values()}
        for size, of_roles in figures["resident_mb"].items()
    }
    figures["grew"] = grown(figures["us_a_step"], own)
    if part == "model":
        figures["publisher_ms"] = {f"{size:g}": _publishing(found[size]) for size in found}
    return {part: figures}


def point(name: str, make: Callable[[float], Cost], time_left: TimeLeft, points: Points, **key: Any) -> Cost | None:
    """Return a run's cost, kept or by `make`, which takes the s that are left; None if there is no time."""
    kept = points.get(**key)
    if kept is None:
        if not time_left.fits(name):
            return None
        try:
            with time_left.timed():
                kept = points.add(asdict(make(time_left.left)), **key)
        except TookTooLong as error:
            print(f"{name}: {error}", flush=True)
            return None
    return Cost(**kept)


def grown(*tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return role -> cost at the largest size over that at the smallest, for those above GREW."""
    ratios = {}
    for name, table in zip(("us", "mb"), tables, strict=True):
        if len(table) < 2:
            continue
        first, last = (list(table.values())[place] for place in (0, -1))
        for role in first:
            if first[role] > 0 and last.get(role, 0.0) > GREW * first[role]:
                ratios[f"{role} {name}"] = round(last[role] / first[role], 2)
    return ratios


def run(
    trial: str, part: str, size: float, folder: Path, urls: Mapping[str, str], seconds: float, patience: float
) -> Cost:
    """Make one run at one size of one part. Raises TookTooLong."""
    copies = int(size) if part == "environments" else COPIES
    actors = int(size) if part == "actors" else 4 if part == "learners" else ACTORS
    played = seconds / 2 if part == "model" and size >= 100 else seconds  # large models take four times as long
    settings = [
        "sampling=streaming", f"actors={actors}", f"env.num_envs={copies}",
        f"unroll_length={SEGMENT // copies}",
        f"batch_segments={STEPS // SEGMENT}", f"total_steps={int(played * STEPS / UPDATE)}",
        f"env.id={APPARATUS / 'null_env.py'}:NullVectorEnv", "env.goal=null",
    ]  # fmt: skip
    if part == "model":
        settings += ["network=own", f"network.name={APPARATUS / 'idle_parameters.py'}:build", f"+network.mb={size}"]
    if part == "learners":  # they average gradients, so they have to compute
        settings += [f"learners={int(size)}", "algorithm.epochs=1", "algorithm.minibatch_size=16384"]
    else:
        settings += [f"algorithm.name={APPARATUS / 'paced_algorithm.py'}:build"]
    os.environ[VARIABLE] = str(UPDATE)
    looks = Looks()
    return looks.cost(train(folder, trial, settings, urls, patience))


class Looks:
    """Processor time and memory of this program's children, by kind, while one run goes on."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, dict[str, float], dict[str, float], float]] = []  # Unix time, s, MB, s of all
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cost(self, job: Job) -> Cost:
        """Return the figures of the last two thirds of a run that has ended."""
        self._ended.set()
        self._thread.join()
        points = job.points
        last, first = points[-1], next(one for one in points if one["steps"] >= points[-1]["steps"] / 3)
        # Until the last update was recorded: after it processes end, and their times are no longer seen.
        (began, before, _, all_before), (ended, after, memory, all_after) = (
            [look for look in self._seen if look[0] <= moment][-1] for moment in (first["time"], last["time"])
        )
        rate = (last["steps"] - first["steps"]) / (last["training_seconds"] - first["training_seconds"])
        steps = rate * (ended - began)
        took = {role: 1e6 * (after[role] - before.get(role, 0.0)) / steps for role in sorted(after)}
        own = sum(after.values()) - sum(before.values())
        cores = (os.cpu_count() or 1) - (all_after - all_before - own) / (ended - began)
        return Cost(took, memory, rate, job.outcome["timing"], cores)

    def _run(self) -> None:
        while not self._ended.is_set():
            processor: defaultdict[str, float] = defaultdict(float)
            memory: defaultdict[str, float] = defaultdict(float)
            for child in psutil.Process().children(recursive=True):
                try:
                    with child.oneshot():
                        role = role_of(child.name(), child.cmdline())
                        processor[role] += sum(child.cpu_times()[:2])
                        memory[role] = max(memory[role], child.memory_info().rss / 1e6)
                except psutil.Error:
                    continue
            times = psutil.cpu_times()
            busy = sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)
            self._seen.append((time.time(), dict(processor), dict(memory), busy))
            self._ended.wait(LOOK_EVERY)


def _medians(costs: Sequence[Cost], of: Callable[[Cost], Mapping[str, float]], digits: int = 3) -> dict[str, float]:
    roles = {role for cost in costs for role in of(cost)}
    return {role: round(statistics.median(of(cost).get(role, 0.0) for cost in costs), digits) for role in sorted(roles)}


def _publishing(costs: Sequence[Cost]) -> dict[str, float]:
    """Return stage of the publisher -> ms a version."""
    stages = {name for cost in costs for name in cost.timing if name.startswith(("publisher: ", "fan-out: "))}
    return {name: round(statistics.median(one.timing[name]["us"] / 1e3 for one in costs), 2) for name in sorted(stages)}
