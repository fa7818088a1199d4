"""`python -m benchmarks.calls`: Warren's calls beside stock Celery's, raw py-amqp's and Ray's; ends in one JSON line.

Payload 32 x 4 float32 in, 32 int64 out. The peers take turns, round by round, each alone on the machine; a ratio is
that of its round, and the median of all rounds is reported. Ray and Dramatiq run in environments of their own, DIR/ray
and DIR/queue of `--peers DIR` (`--ray PYTHON`, or WARREN_RAY_PYTHON, names Ray's Python instead); a missing one is
skipped with a line that says so. `--only PART` runs one part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.apparatus.peer_python import peer_python
from benchmarks.apparatus.ratios import with_intervals
from benchmarks.apparatus.report import finish
from benchmarks.calls import batching as call_batching
from benchmarks.calls import noops as call_noops
from benchmarks.calls import parts as call_parts
from benchmarks.calls.peers import Peer, all_peers
from workers import servers

TARGETS = {
    "sync_p50_vs_ray": ("<=", 0.75),
    "sync_vs_raw": (">=", 0.9),
    "pipelined_vs_ray": (">=", 3.5),
    "async_vs_ray": (">=", 4.0),
    "batched_vs_unbatched": (">=", 3.0),
    "drain_vs_dramatiq": (">=", 5.0),
    "fanout_vs_raw": (">=", 0.8),
    "codec_ms": ("<=", 1.5),
    "codec_vs_msgpack": ("<=", 1.1),
    "longest_call_ms": ("<=", 250.0),
}
TURNS, SYNC, PIPELINED, SUBMITTED = 10, 300, 800, 800  # turns a round; calls of each kind a turn
PARTS = ("peers", "batched", "noops", "fanout", "codec", "stall", "profile")


def main() -> int:
    """Run the parts, print tables, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="of the peers' environments: DIR/ray, DIR/queue")
    parser.add_argument("--ray", default=os.environ.get("WARREN_RAY_PYTHON"), metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument(
        "--client-processes", type=int, default=call_batching.PROCESSES, help="that the 64 clients of `batched` share"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    parser.add_argument("--servers", default="private", choices=servers.MODES)
    options = parser.parse_args()
    parts = options.only or list(PARTS)
    scale = 10 if options.quick else 1
    ray = peer_python("Ray", options.ray, options.peers, "ray") if "peers" in parts else None
    dramatiq = peer_python("Dramatiq", None, options.peers, "queue") if "noops" in parts else None
    with (
        tempfile.TemporaryDirectory() as folder,
        servers.acquire(options.servers, folder=Path(folder), say=lambda line: print(line, file=sys.stderr)) as found,
    ):
        urls = found.broker_url, found.redis_url
        report: dict[str, Any] = {}
        if "codec" in parts:
            report |= call_parts.codec_times()
        if "peers" in parts:
            report |= peers(*urls, ray, options.rounds, scale)
        if "batched" in parts:
            report |= call_batching.batched(*urls, options.rounds, 0.3 / scale, options.client_processes)
        if "noops" in parts:
            report |= call_noops.noops(*urls, dramatiq, options.rounds, call_noops.CALLS // scale)
        if "fanout" in parts:
            report |= call_parts.fanout(*urls, options.rounds)
        if "stall" in parts:
            report |= call_parts.stall(*urls, 100_000 // scale)
        if "profile" in parts:
            report |= call_parts.profile(*urls, 3000 // scale)
    verdict(report)
    finish("calls", report)
    return 0


@dataclass
class Figures:
    """Figures of one peer: latencies of sequential calls in s, and rates of the other kinds."""

    latencies: list[float] = field(default_factory=list)
    pipelined: list[float] = field(default_factory=list)  # calls/s, one a turn
    submitted: list[float] = field(default_factory=list)

    @property
    def rates(self) -> dict[str, float]:
        """Return calls/s of each kind: the harmonic mean of turns, as if they were one."""
        return {
            "sync": len(self.latencies) / sum(self.latencies),
            "pipelined": statistics.harmonic_mean(self.pipelined),
            "async": statistics.harmonic_mean(self.submitted),
        }

    def percentile(self, percent: float) -> float:
        """Return a percentile of the latency, in ms."""
        return float(np.percentile(self.latencies, percent) * 1e3)

    def describe(self) -> dict[str, Any]:
        """Return the figures for the report."""
        tails = {f"p{str(q).replace('.', '')}_ms": round(self.percentile(q), 3) for q in (50, 99, 99.9)}
        return {**{f"{kind}_per_s": round(rate) for kind, rate in self.rates.items()}, **tails}


def peers(broker_url: str, redis_url: str, ray: str | None, rounds: int, scale: int) -> dict[str, Any]:
    """Measure all peers in turns; return the ratios of each round, their medians and intervals."""
    all_ratios: dict[str, list[float]] = defaultdict(list)
    described: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number in range(rounds):
        with all_peers(broker_url, redis_url, f"bench-{os.getpid()}-{number}", ray) as present:
            measured = take_turns(present, TURNS // scale or 1)
        for name, figures in measured.items():
            described[name].append(figures.describe())
            print(f"round {number + 1} {name:7} {json.dumps(described[name][-1])}", flush=True)
        for key, ratio in ratios(measured).items():
            all_ratios[key].append(ratio)
    report: dict[str, Any] = with_intervals(all_ratios)
    report["rounds"] = {name: [round(value, 3) for value in values] for name, values in all_ratios.items()}
    for name, found in described.items():
        report[name] = {key: statistics.median(one[key] for one in found) for key in found[0]}
    return report


def take_turns(present: dict[str, Peer], turns: int) -> dict[str, Figures]:
    """Measure each peer for a moment, again and again, so that other load of the machine falls on all alike."""
    measured = {name: Figures() for name in present}
    for turn in range(turns + 1):
        for name, peer in present.items():
            share = 5 if name == "celery" else 1  # it is slow
            latencies = peer.sync(SYNC // share)
            rates = peer.pipelined(PIPELINED // share), peer.submitted(SUBMITTED // share)
            if turn:  # the first warms up
                measured[name].latencies += latencies
                measured[name].pipelined.append(rates[0])
                measured[name].submitted.append(rates[1])
    return measured


def ratios(measured: dict[str, Figures]) -> dict[str, float]:
    """Return the ratios of Warren's figures to those of the others."""
    mine, found = measured["warren"], {}
    for name, other in measured.items():
        if name != "warren":
            found[f"sync_p50_vs_{name}"] = mine.percentile(50) / other.percentile(50)
            found |= {f"{kind}_vs_{name}": rate / other.rates[kind] for kind, rate in mine.rates.items()}
    return found


def verdict(report: dict[str, Any]) -> None:
    """Print each target, its measurement, and whether it is met."""
    for key, (sign, target) in TARGETS.items():
        value = report.get(key)
        if value is None:
            continue
        worst = min(value.values()) if isinstance(value, dict) else value
        met = worst <= target if sign == "<=" else worst >= target
        print(f"{'met   ' if met else 'MISSED'}  {key:22} {value}  (target {sign} {target})")


if __name__ == "__main__":
    sys.exit(main())
