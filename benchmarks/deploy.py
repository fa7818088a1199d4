"""Backends of a deployed policy: decisions/s of one observation at a time, and of many, beside PyTorch's.

    python -m benchmarks.deploy                   # CartPole's network, one with an LSTM, Atari's
    python -m benchmarks.deploy --seconds 5

One thread. Backends take turns, a fraction of a second each, so that other load of the machine falls on all alike; the
median of their turns counts. The time is that of `Backend.act`: arrays in, an action drawn, arrays out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from agents import build_policy
from benchmarks.apparatus.report import finish
from workers.models.backends import Backend, build_backend

BACKENDS = ("pytorch", "onnx", "int8")
VECTOR = Box(-np.inf, np.inf, (4,), np.float32), Discrete(2)
NETWORKS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "mlp": ({}, *VECTOR),
    "lstm": ({"shared": True, "core": {"name": "lstm"}}, *VECTOR),
    "nature_cnn": ({"name": "nature_cnn"}, Box(0, 255, (4, 84, 84), np.uint8), Discrete(6)),
}
ROWS = (1, 64)
TURNS = 10
AT_LEAST = 1.3  # times PyTorch's rate: ONNX Runtime, one observation at a time, the MLP


def main() -> int:
    """Run the command line; return exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deploy", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each backend, network and number of rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[str, float]] = {}
    for network, (settings, observations, actions) in NETWORKS.items():
        policy = build_policy(settings, observations, actions, 0).requires_grad_(False)
        backends = [build_backend(name, policy) for name in BACKENDS]
        for rows in ROWS:
            for mode in ("sample", "greedy"):
                found = rates(backends, rows, mode, options.seconds)
                figures[f"{network} {rows} {mode}"] = found
                said = "   ".join(f"{name} {rate:10,.0f}" for name, rate in found.items())
                print(f"{network:10} {rows:3} at once, {mode:6}   {said}   decisions/s", flush=True)
    one = figures["mlp 1 sample"]
    ratio = round(one["onnx"] / one["pytorch"], 2)
    finish("deploy", {"decisions_per_s": figures, "onnx_vs_pytorch": ratio, "met": ratio >= AT_LEAST})
    return 0


def rates(backends: list[Backend], rows: int, mode: str, seconds: float) -> dict[str, float]:
    """Return backend -> decisions/s."""
    space = backends[0].policy.observation_space
    observation = np.stack([np.nan_to_num(space.sample()) for _ in range(rows)])
    turns: dict[str, list[float]] = {one.name: [] for one in backends}
    for turn in range(TURNS + 1):
        for one in backends:
            generator, memory, decisions = torch.Generator().manual_seed(0), one.initial_memory(rows), 0
            began = time.perf_counter()
            until = began + seconds / TURNS
            while (now := time.perf_counter()) < until:
                _, memory = one.act(observation, memory, mode, generator)
                decisions += rows
            if turn:  # the first turn is for warming up
                turns[one.name].append(decisions / (now - began))
    return {name: round(statistics.median(found), 1) for name, found in turns.items()}


if __name__ == "__main__":
    sys.exit(main())
