"""What a step costs each part of a run, as actors, environments, the model and learners grow: whole streaming runs.

The work is the same in every run: 131,072 steps/s, in updates of 65,536 that do nothing for half a second. So what the
processes take of the processor is told apart from what a busy machine lets them do, and a part whose cost a step grows
with the number of actors shows, long before it is the one that ends first.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.paced_algorithm import VARIABLE
from benchmarks.served import role_of
from benchmarks.throughput_jobs import Job, own_servers, train

HERE = Path(__file__).resolve().parent
STEPS, UPDATE = 65_536, 0.5  # of an update: steps, and s
UNROLL, COPIES, ACTORS = 32, 64, 2
PARTS = ("actors", "environments", "model", "learners")
SIZES: Mapping[str, Sequence[float]] = {
    "actors": (1, 4, 16, 32),
    "environments": (16, 64, 256, 1024),
    "model": (0.1, 1, 10, 100),  # MB
    "learners": (1, 2, 4),
}
LOOK_EVERY = 1.0  # s
GREW = 1.25  # times: what is called growth


@dataclass(frozen=True)
class Cost:
    """Of one run."""

    us_a_step: Mapping[str, float]  # role -> us of a core
    resident_mb: Mapping[str, float]  # role -> the most of one process
    rate: float  # steps/s
    timing: Mapping[str, Any]  # of the learner, by stage


def measure(part: str, seconds: float, rounds: int, of_a_run: float = 8.0) -> dict[str, Any]:
    """Medians over as many rounds as `seconds` allow, at least one; `of_a_run`: s that a run plays, about."""
    sizes, found = SIZES[part], defaultdict[float, list[Cost]](list)
    until, longest = time.monotonic() + seconds, 0.0
    with own_servers() as (folder, urls):
        for turn, size in _turns(sizes, rounds):
            began = time.monotonic()
            if turn and began + longest > until:
                break
            cost = run(f"{part}-{size}-{turn}", part, size, folder, urls, of_a_run)
            found[size].append(cost)
            longest = max(longest, time.monotonic() - began)
            shown = {role: round(us, 2) for role, us in cost.us_a_step.items()}
            print(f"{part} {size:g}, round {turn + 1}: {cost.rate:,.0f} steps/s; us a step {shown}", flush=True)
    figures: dict[str, Any] = {
        "rounds": min(map(len, found.values())),
        "us_a_step": {f"{size:g}": _medians(found[size], lambda cost: cost.us_a_step) for size in found},
        "resident_mb": {f"{size:g}": _medians(found[size], lambda cost: cost.resident_mb, 0) for size in found},
        "steps_per_s": {f"{size:g}": round(statistics.median(one.rate for one in found[size])) for size in found},
    }
    figures["grew"] = grown(figures["us_a_step"], figures["resident_mb"])
    if part == "model":
        figures["publisher_ms"] = {f"{size:g}": _publishing(found[size]) for size in found}
    return {part: figures}


def grown(*tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Role -> cost at the largest size over that at the smallest, where that is over GREW."""
    ratios = {}
    for name, table in zip(("us", "mb"), tables, strict=True):
        first, last = (list(table.values())[place] for place in (0, -1))
        for role in first:
            if first[role] > 0 and last.get(role, 0.0) > GREW * first[role]:
                ratios[f"{role} {name}"] = round(last[role] / first[role], 2)
    return ratios


def run(trial: str, part: str, size: float, folder: Path, urls: Mapping[str, str], seconds: float) -> Cost:
    """One run at one size of one part."""
    copies = int(size) if part == "environments" else COPIES
    actors = int(size) if part == "actors" else 4 if part == "learners" else ACTORS
    settings = [
        "sampling=streaming", f"actors={actors}", f"env.num_envs={copies}", f"unroll_length={UNROLL}",
        f"batch_segments={STEPS // copies // UNROLL}", f"total_steps={int(seconds * STEPS / UPDATE)}",
        f"env.id={HERE / 'null_env.py'}:NullVectorEnv", "env.goal=null",
    ]  # fmt: skip
    if part == "model":
        settings += ["network=own", f"network.name={HERE / 'idle_parameters.py'}:build", f"+network.mb={size}"]
    if part == "learners":  # which average gradients, and so compute
        settings += [f"learners={int(size)}", "algorithm.epochs=1", "algorithm.minibatch_size=16384"]
    else:
        settings += [f"algorithm.name={HERE / 'paced_algorithm.py'}:build"]
    os.environ[VARIABLE] = str(UPDATE)
    looks = Looks()
    job = train(folder, trial, settings, urls)
    return looks.cost(job)


class Looks:
    """What this program's children take of processor and memory, by what they are, while one run goes on."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, dict[str, float], dict[str, float]]] = []  # Unix time, s, MB
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cost(self, job: Job) -> Cost:
        """Of the last two thirds of the run, which has ended."""
        self._ended.set()
        self._thread.join()
        points = job.points
        last, first = points[-1], next(one for one in points if one["steps"] >= points[-1]["steps"] / 3)
        (began, before, _), (ended, after, memory) = (
            min(self._seen, key=lambda look: abs(look[0] - moment)) for moment in (first["time"], last["time"])
        )
        rate = (last["steps"] - first["steps"]) / (last["training_seconds"] - first["training_seconds"])
        steps = rate * (ended - began)
        took = {role: 1e6 * (after[role] - before.get(role, 0.0)) / steps for role in sorted(after)}
        return Cost(took, memory, rate, job.outcome["timing"])

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
            self._seen.append((time.time(), dict(processor), dict(memory)))
            self._ended.wait(LOOK_EVERY)


def _turns(sizes: Sequence[float], rounds: int) -> Iterator[tuple[int, float]]:
    return ((turn, size) for turn in range(rounds) for size in sizes)


def _medians(costs: Sequence[Cost], of: Callable[[Cost], Mapping[str, float]], digits: int = 3) -> dict[str, float]:
    roles = {role for cost in costs for role in of(cost)}
    return {role: round(statistics.median(of(cost).get(role, 0.0) for cost in costs), digits) for role in sorted(roles)}


def _publishing(costs: Sequence[Cost]) -> dict[str, float]:
    """Stage of the publisher -> ms a version."""
    stages = {name for cost in costs for name in cost.timing if name.startswith(("publisher: ", "fan-out: "))}
    return {name: round(statistics.median(one.timing[name]["us"] / 1e3 for one in costs), 2) for name in sorted(stages)}
