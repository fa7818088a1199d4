"""Transitions per second that a replay stores and draws, evenly and by priority, beside three other libraries.

`python -m benchmarks.replay --peers DIR [--rounds 3] [--seconds 3] [--quick]`: 1,000,000 transitions of 4 floats, from
64 environments, 256 a draw; 100,000 of 4 x 84 x 84 bytes, from 8, 32 a draw. All have one thread and are measured in
turns, each in a process of its own, when full. DIR/rl holds the peers' environment (torchrl, stable-baselines3,
cpprb; those that it lacks are left out). The ratios are to the best peer, in the case in which they are lowest; each
case's own are beside them, with intervals (benchmarks/apparatus/ratios.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.apparatus.peer_python import peer_python
from benchmarks.apparatus.ratios import with_intervals
from benchmarks.apparatus.report import finish
from benchmarks.replay.cases import CASES

PEER = Path(__file__).resolve().parents[1] / "foreign" / "replay_peer.py"
PATIENCE = 600.0  # s
PEERS = {"torchrl": "torchrl", "sb3": "stable_baselines3", "cpprb": "cpprb"}  # name -> the module to import
KINDS = ("insert", "sample", "prioritized")


def measured(command: list[str], own: bool) -> dict[str, float]:
    """Run one side in one case; return its rates by kind. If it fails, end this program with its own message."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if not own:
        environment["PYTHONPATH"] = ""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    if ran.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ran.stderr[-4000:]}")
    print(ran.stderr[-300:] if not own else "", end="")
    rates: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return rates


def _has(python: str, module: str) -> bool:
    """Return True if an environment has a module; else print that it is left out."""
    looked = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if missing := subprocess.run([python, "-c", looked], timeout=PATIENCE).returncode:
        print(f"{module} left out: {python} has none", flush=True)
    return not missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--quick", action="store_true", help="a fifth and a tenth of the transitions, 1 s each")
    given = parser.parse_args()
    size, seconds = ("quick", 1.0) if given.quick else ("full", given.seconds)
    python = peer_python("torchrl, Stable-Baselines3 and cpprb", None, given.peers, "rl")
    sides = {"warren": [sys.executable, "-m", "benchmarks.replay.own"]}
    if python is not None:
        sides |= {name: [python, str(PEER), name] for name, module in PEERS.items() if _has(python, module)}
    found: dict[str, dict[str, dict[str, list[float]]]] = {case: {side: {} for side in sides} for case in CASES}
    for turn in range(given.rounds):
        for case in CASES:
            for side, command in sides.items():
                rates = measured([*command, case, size, str(seconds)], side == "warren")
                for kind, value in rates.items():
                    found[case][side].setdefault(kind, []).append(value)
                told = ", ".join(f"{kind} {value:12,.0f}" for kind, value in rates.items())
                print(f"round {turn + 1}, {case:8}{side:8} {told} transitions/s", flush=True)
    medians = {
        case: {side: {kind: round(median(values)) for kind, values in rates.items()} for side, rates in of.items()}
        for case, of in found.items()
    }
    ratios = to_best(found, medians) if python is not None else {}
    finish("replay", {**ratios, "size": size, "rounds": given.rounds, "transitions_per_s": medians})


Sides = dict[str, dict[str, Any]]  # side -> kind -> what was measured


def to_best(found: dict[str, Sides], medians: dict[str, Sides]) -> dict[str, Any]:
    """Return Warren's ratios to the best peer of each kind and case, None where no peer has it, and each kind's least.

    `found`: case -> side -> kind -> the rate of each round; `medians` the same with the median rates.
    """
    ratios: dict[str, Any] = {}
    for kind in KINDS:
        least = None
        for case, of in medians.items():
            name = f"{kind}_vs_best_{case}"
            peers = [side for side, rates in of.items() if side != "warren" and kind in rates]
            if not peers:
                ratios[name] = None
                continue
            best = max(peers, key=lambda side, of=of, kind=kind: of[side][kind])
            ours, theirs = found[case]["warren"][kind], found[case][best][kind]
            ratios |= with_intervals({name: [one / other for one, other in zip(ours, theirs, strict=True)]})
            least = ratios[name] if least is None else min(least, ratios[name])
        ratios[f"{kind}_vs_best"] = least
    return ratios


if __name__ == "__main__":
    main()
