"""10, 100 and 1,000 actors with a core each: the part of a run that saturates first, by simulation from measured times.

Whole runs of CartPole (PPO, 64 environments x 128 steps, four epochs) are measured with 1 to 8 actors on this machine's
cores. Runs without computing are measured with 1 and 32 actors; their difference is the cost of sending weights to each
actor. Service times are processor time, not clock time. The simulation with as many cores as this machine has, slowed
by what other programs took of them during each run, is compared with the measured rates before it is used for more
actors.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.apparatus.jobs import own_servers, train
from benchmarks.apparatus.points import Points, TimeLeft
from benchmarks.growth import runs as growth_runs
from benchmarks.growth.runs import STEPS, Cost, Looks, point
from benchmarks.growth.simulation import UPDATES, Run, Service, ladder

SEGMENT, SEGMENT_BYTES, WEIGHTS_BYTES = 64 * 128, 348_696, 37_000  # CartPole's: steps, bytes
CALIBRATED_WITH = 2  # actors
MEASURED = (1, 2, 4, 8)
IDLE = (1, 32)  # actors of the runs without computing
IDLE_S, STEPS_EACH = 8.0, 600_000  # s of a run without computing; an actor's steps of a run of CartPole
MANY = (10, 100, 1000)
SIMULATING = 50.0  # s for simulating them
CONFIRMED = 0.15  # largest median error of the rate at which the simulation counts as right


def measure(time_left: TimeLeft, points: Points) -> dict[str, Any]:
    """Return service times, simulated and measured rates, and what saturates first; {} until all runs are measured."""
    idle: dict[int, Cost] = {}
    runs: dict[int, Cost] = {}
    with own_servers() as (folder, urls):
        makes = {
            **{
                ("idle", actors): partial(growth_runs.run, f"idle-{actors}", "actors", actors, folder, urls, IDLE_S)
                for actors in IDLE
            },
            **{("cartpole", actors): partial(cartpole, actors, folder, urls) for actors in MEASURED},
        }
        for (what, actors), make in makes.items():
            cost = point(f"{what}, {actors} actors", make, time_left, points, what=what, actors=actors)
            if cost is None:
                return {}
            {"idle": idle, "cartpole": runs}[what][actors] = cost
            shown = {role: round(us, 2) for role, us in cost.us_a_step.items()}
            print(f"{what}, {actors} actors: {cost.rate:,.0f} steps/s on {cost.cores:.2f} cores; us a step {shown}")
    service = service_of(runs[CALIBRATED_WITH], idle)
    print(f"service times: {service}", flush=True)
    cores = os.cpu_count() or 1
    beside: dict[str, dict[str, float]] = {}
    for actors, cost in runs.items():
        # Each core is slower by the share that other programs took.
        simulated = Run(service.slower(cores / cost.cores), actors, cores).simulate().rate
        beside[str(actors)] = {
            "measured": round(cost.rate), "simulated": round(simulated),
            "error": round(simulated / cost.rate - 1, 3), "cores": round(cost.cores, 2),
            "us_a_step": round(sum(cost.us_a_step.values()), 2),
        }  # fmt: skip
        print(f"{actors} actors: {beside[str(actors)]}", flush=True)
    limits = {
        str(actors): [(part, round(rate)) for part, rate in ladder(service, actors, updates(actors))] for actors in MANY
    }
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
            "confirmed": statistics.median(errors) <= CONFIRMED,
            "ends_first": limits,
        }
    }


def updates(actors: int) -> int:
    """Return the number of updates to simulate: with many messages each, fewer are enough."""
    return max(8, min(UPDATES, 3000 // actors))


def cartpole(actors: int, folder: Path, urls: Mapping[str, str], patience: float) -> Cost:
    """Make one run as fast as it goes. Raises TookTooLong."""
    settings = (
        "env=cartpole", "env.num_envs=64", "env.goal=null", "sampling=streaming", f"actors={actors}",
        "unroll_length=128", "algorithm.epochs=4", f"algorithm.minibatch_size={2048 * actors}",
        f"total_steps={STEPS_EACH}",
    )  # fmt: skip
    looks = Looks()
    return looks.cost(train(folder, f"cartpole-{actors}", settings, urls, patience))


def service_of(computing: Cost, idle: Mapping[int, Cost]) -> Service:
    """Return the times of one segment from the roles' processor time. `idle`: actors -> a run without computing."""
    one, many = idle[1], idle[max(idle)]
    versions = one.rate / STEPS  # a second
    more = (many.us_a_step["rabbitmq"] * many.rate - one.us_a_step["rabbitmq"] * one.rate) * 1e-6  # s a second
    fan_out = max(0.0, more / versions / (max(idle) - 1))
    besides = one.us_a_step["learner"]
    # A segment is 32 steps without computing and 128 with it; messages and the ledger's notes cost per message.
    per_message = 1e-6 * growth_runs.SEGMENT
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
