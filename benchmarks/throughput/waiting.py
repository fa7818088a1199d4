"""Parts of `benchmarks.throughput` in which a run waits: for a slow learner, and for slow environments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.apparatus.jobs import PARTS, Job
from workers.runtime.segment_ledger import REASONS

APPARATUS = Path(__file__).resolve().parents[1] / "apparatus"
SLOW_STEPS = 200_000
ACTORS = 2
WAITED = (40, 200)  # steps of all actors in a short and in a long run; an actor makes two a second


def slow(job: Callable[..., Job], options: argparse.Namespace) -> dict[str, Any]:
    """Check that samplers wait for a slow learner: nothing piles up, nothing is lost."""
    done = job(
        "slow", "env=cartpole", "env.num_envs=64", "env.goal=null", "sampling=streaming", "actors=2",
        "unroll_length=128",
        f"algorithm.name={APPARATUS / 'slow_algorithm.py'}:build", "algorithm.minibatch_size=4096",
        f"total_steps={SLOW_STEPS}",
    )  # fmt: skip
    resident = done.resident_mb[len(done.resident_mb) // 4 : -4]  # from when all have started until they end
    half = len(resident) // 2
    growth = max(resident[half:]) / max(resident[:half]) - 1
    account = done.segments
    gone = sum(account[name] for name in ("learned", *REASONS, "in_flight"))
    figures = {
        "slow_memory_growth": round(growth, 3),
        "slow_account_adds_up": account["made"] == gone and account["lost"] == 0,
        "slow_segments": account,
        "slow_data_age_median": done.data_age,
    }
    print(f"a learner slowed ten times: {figures}", flush=True)
    return figures


def upkeep(job: Callable[..., Job], options: argparse.Namespace) -> dict[str, Any]:
    """Return the ms of a core per second that each part of a run uses while environments keep it waiting.

    It is what a long run uses beyond a short one, over the seconds that it is longer; of actors, one of ACTORS.
    """
    short, long = (
        job(
            f"upkeep-{steps}", f"env.id={APPARATUS / 'null_env.py'}:WaitingVectorEnv", "env.num_envs=1",
            "env.goal=null", "unroll_length=4", "algorithm.minibatch_size=8",
            f"actors={ACTORS}", f"total_steps={steps}",
        )
        for steps in WAITED
    )  # fmt: skip
    seconds = long.outcome["seconds"] - short.outcome["seconds"]
    each = {part: ACTORS if part == "actors" else 1 for part in PARTS}
    used = {part: 1e3 * (long.cpu_s[part] - short.cpu_s[part]) / seconds / number for part, number in each.items()}
    figures = {"upkeep_ms_a_second": {part: round(ms, 1) for part, ms in used.items()}}
    print(f"waiting for environments: {figures}", flush=True)
    return figures
