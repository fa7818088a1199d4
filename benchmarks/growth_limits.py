"""10, 100 and 1,000 actors with a core each: which part of a run ends first, by simulation with measured times.

Measured are whole runs of CartPole (PPO, 64 environments x 128 steps, four epochs) with 1 to 8 actors on this machine's
cores, and runs without computing with 1 and 32 actors, whose difference is what weights cost that go to each actor. The
simulation with as many cores as this machine has is held against the measured rates before it says anything of more.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import growth_runs
from benchmarks.growth_runs import STEPS, Cost, Looks
from benchmarks.growth_simulation import Run, Service, ladder
from benchmarks.throughput_jobs import own_servers, train

SEGMENT, SEGMENT_BYTES, WEIGHTS_BYTES = 64 * 128, 348_696, 37_000  # CartPole's: steps, bytes
CALIBRATED_WITH = 2  # actors
MEASURED = (1, 2, 4, 8)
MANY = (10, 100, 1000)


def measure(seconds: float) -> dict[str, Any]:
    """Service times, simulated beside measured rates, and what ends first; `seconds` of measured runs, about."""
    of_a_run = seconds / (len(MEASURED) + 2) - 10
    with own_servers() as (folder, urls):
        idle = {
            actors: growth_runs.run(f"idle-{actors}", "actors", actors, folder, urls, of_a_run) for actors in (1, 32)
        }
        runs = {actors: cartpole(actors, folder, urls, of_a_run) for actors in MEASURED}
    service = service_of(runs[CALIBRATED_WITH], idle)
    print(f"service times: {service}", flush=True)
    cores = os.cpu_count() or 1
    beside: dict[str, dict[str, float]] = {}
    for actors, cost in runs.items():
        simulated = Run(service, actors, cores).simulate().rate
        error = simulated / cost.rate - 1
        beside[str(actors)] = {
            "measured": round(cost.rate), "simulated": round(simulated), "error": round(error, 3),
        }  # fmt: skip
        print(f"{actors} actors on {cores} cores: {beside[str(actors)]}", flush=True)
    limits = {str(actors): [(part, round(rate)) for part, rate in ladder(service, actors)] for actors in MANY}
    for actors, steps in limits.items():
        print(f"{actors} actors: " + ", then ".join(f"{part} at {rate:,} steps/s" for part, rate in steps), flush=True)
    errors = [abs(one["error"]) for actors, one in beside.items() if int(actors) != CALIBRATED_WITH]
    return {
        "simulated": {
            "service_ms": {
                name: round(1e3 * value, 3)
                for name, value in vars(service).items()
                if isinstance(value, float) and value < 10
            },
            "beside_measured": beside,
            "error_median": round(statistics.median(errors), 3),
            "ends_first": limits,
        }
    }


def cartpole(actors: int, folder: Path, urls: Mapping[str, str], seconds: float) -> Cost:
    """One run as fast as it goes."""
    steps = int(60_000 * seconds)
    settings = (
        "env=cartpole", "env.num_envs=64", "env.goal=null", "sampling=streaming", f"actors={actors}",
        "unroll_length=128", "algorithm.epochs=4", f"algorithm.minibatch_size={2048 * actors}",
        f"total_steps={steps}",
    )  # fmt: skip
    looks = Looks()
    return looks.cost(train(folder, f"cartpole-{actors}", settings, urls))


def service_of(computing: Cost, idle: Mapping[int, Cost]) -> Service:
    """Times of one segment, by what the processes took of the processor. `idle`: actors -> a run without computing."""
    one, many = idle[1], idle[max(idle)]
    versions = one.rate / STEPS  # a second
    more = (many.us_a_step["rabbitmq"] * many.rate - one.us_a_step["rabbitmq"] * one.rate) * 1e-6  # s a second
    fan_out = max(0.0, more / versions / (max(idle) - 1))
    besides = one.us_a_step["learner"]
    # A segment without computing is 32 steps long and one with it 128: messages cost by the message, and so do notes.
    per_message = 1e-6 * growth_runs.UNROLL * growth_runs.COPIES
    return Service(
        steps=SEGMENT,
        collect=1e-6 * SEGMENT * computing.us_a_step["actor"],
        broker=1e-6 * SEGMENT * computing.us_a_step["rabbitmq"],
        redis=per_message * one.us_a_step["redis"],
        receive=per_message * besides,
        update=max(0.0, 1e-6 * SEGMENT * computing.us_a_step["learner"] - per_message * besides),
        fan_out=fan_out,
        segment_bytes=SEGMENT_BYTES,
        weights_bytes=WEIGHTS_BYTES,
    )
