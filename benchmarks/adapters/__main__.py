"""The cost of the games' adapters: `python -m benchmarks.adapters [NAME ...]`.

Measures steps a second of eight copies through the adapter, beside the same eight stepped by the bare library. That
side steps one after another in a loop by the library's own calls, with the same preprocessing, collects observations
into an array, and begins ended episodes anew. Both have the same actions. They take turns every 20 ms; the ratio is the
median of `--repeats`. Libraries that are not installed are left out, and named. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.adapters.games import CASES
from benchmarks.adapters.steppers import COPIES, Missing, Stepper
from benchmarks.apparatus.report import finish

GOAL = 0.9
WARM = 0.1  # share of the time before measurement begins
TURN = 0.02  # seconds that one side is stepped before the other's turn


# The processor's clock is that of this process with all its threads, whatever else the machine does.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
Clock = Callable[[], float]


def rates(sides: Sequence[Stepper], seconds: float, clock: Clock) -> list[float]:
    """Return each side's steps per second of single copies: they take turns all the time, so that both meet the same
    load of the machine."""
    for side in sides:
        _run(side, seconds * WARM, clock)
    steps, spent = [0] * len(sides), [0.0] * len(sides)
    while min(spent) < seconds:
        for i, side in enumerate(sides):
            made, took = _run(side, TURN, clock)
            steps[i] += made
            spent[i] += took
    return [COPIES * made / took for made, took in zip(steps, spent, strict=True)]


def _run(stepper: Stepper, seconds: float, clock: Clock) -> tuple[int, float]:
    began = now = clock()
    steps = 0
    while now < began + seconds:
        for _ in range(10):
            stepper.step()
        steps += 10
        now = clock()
    return steps, now - began


def compare(
    adapter: Callable[[], Stepper], bare: Callable[[], Stepper], seconds: float, repeats: int, clock: Clock
) -> dict[str, Any]:
    """Return the steps/s of both, as medians, and the median of the ratios of the pairs."""
    sides = adapter(), bare()
    try:
        pairs = [rates(sides, seconds, clock) for _ in range(repeats)]
    finally:
        for side in sides:
            side.close()
    return {
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 3),
        "ratios": [round(ours / theirs, 3) for ours, theirs in pairs],
        "steps_per_s": round(statistics.median(ours for ours, _ in pairs)),
        "bare_steps_per_s": round(statistics.median(theirs for _, theirs in pairs)),
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(CASES)}; default: all")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    given = parser.parse_args()
    if unknown := set(given.names) - set(CASES):
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(CASES)}")
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name in given.names or CASES:
        try:
            found[name] = compare(*CASES[name](), given.seconds, given.repeats, CLOCKS[given.clock])
        except Missing as error:
            missing[name] = str(error)
            print(f"{name:<24} left out: {error}", flush=True)
            continue
        one = found[name]
        rates = f"{one['steps_per_s']:>9,} steps/s, bare {one['bare_steps_per_s']:>9,}"
        print(f"{name:<24} {rates}, ratio {one['ratio']:.3f}", flush=True)
    finish(
        "adapters",
        {
            "ratios": {name: one["ratio"] for name, one in found.items()},
            "least": min((one["ratio"] for one in found.values()), default=None),
            "goal": GOAL,
            "below": sorted(name for name, one in found.items() if one["ratio"] < GOAL),
            "copies": COPIES, "repeats": given.repeats, "seconds": given.seconds, "clock": given.clock,
            "missing": missing, "runs": found,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
