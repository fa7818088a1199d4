"""The parts of `benchmarks.calls` that do not use Ray: events, the codec, stalls, a profile."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import Any

import msgpack
import numpy as np

from benchmarks.calls.actor import OBSERVATION
from benchmarks.calls.fanout import measure
from benchmarks.calls.peers import served
from tasks.app import create_app
from tasks.codec.decoder import unpack
from tasks.codec.encoder import pack
from tasks.solver import Solver
from tasks.topology import Topology

WEIGHTS_FLOATS = 1_600_000  # 6.4 MB of float32


def codec_times() -> dict[str, Any]:
    """Return times of encoding and decoding 6.4 MB of float32, beside MessagePack of the same bytes and a memcpy."""
    array = np.random.default_rng(0).standard_normal(WEIGHTS_FLOATS).astype("f4")
    raw = array.tobytes()
    target = np.empty_like(array)

    def ours() -> None:
        unpack(pack({"weights": array}))

    def theirs() -> None:
        found = msgpack.unpackb(msgpack.packb({"weights": raw}))
        np.copyto(target, np.frombuffer(found["weights"], "f4"))

    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(60):
        for name, function in (("ours", ours), ("theirs", theirs)):
            started = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - started)
    mine, other = (statistics.median(times[name]) for name in ("ours", "theirs"))
    return {"codec_ms": round(mine * 1e3, 3), "codec_vs_msgpack": round(mine / other, 3)}


def fanout(broker_url: str, redis_url: str, rounds: int) -> dict[str, Any]:
    """Return the speed of 6.4 MB of weights to 1, 8 and 32 subscribers, beside raw kombu."""
    ratios = {}
    for subscribers in (1, 8, 32):
        pairs = []
        for number in range(rounds):
            run = f"fan-{os.getpid()}-{subscribers}-{number}"
            raw = measure("raw", broker_url, redis_url, run, subscribers)
            pairs.append((measure("warren", broker_url, redis_url, run, subscribers), raw))
        ratios[str(subscribers)] = round(statistics.median(mine / raw for mine, raw in pairs), 3)
        rates = [statistics.median(rate) / 1e6 for rate in zip(*pairs, strict=True)]
        print(f"{subscribers:2} subscribers: {rates[0]:.0f} MB/s, raw kombu {rates[1]:.0f} MB/s", flush=True)
    return {"fanout_vs_raw": ratios}


def stall(broker_url: str, redis_url: str, number: int) -> dict[str, Any]:
    """Make many sequential calls; the longest one shows stalls."""
    run = f"stall-{os.getpid()}"
    topology = Topology(run)
    solver = Solver(create_app(topology, broker_url, redis_url), topology)
    with served("warren", broker_url, redis_url, run):
        latencies = np.empty(number)
        for _ in range(300):
            solver.call("actor.infer", OBSERVATION)
        for index in range(number):
            started = time.perf_counter()
            solver.call("actor.infer", OBSERVATION)
            latencies[index] = time.perf_counter() - started
    solver.close()
    p50, p99, p999 = np.percentile(latencies, (50, 99, 99.9)) * 1e3
    print(f"{number} sequential calls: p50 {p50:.3f} p99 {p99:.2f} p99.9 {p999:.2f} max {latencies.max() * 1e3:.1f} ms")
    return {"sequential_calls": number, "longest_call_ms": round(float(latencies.max() * 1e3), 1)}


def profile(broker_url: str, redis_url: str, number: int) -> dict[str, Any]:
    """Return the median time of each part of a sequential call, in microseconds."""
    run = f"profile-{os.getpid()}"
    topology = Topology(run)
    solver = Solver(create_app(topology, broker_url, redis_url), topology)
    with served("warren-timed", broker_url, redis_url, run):
        parts: dict[str, list[float]] = {"encode and send": [], "wait": [], "decode": []}
        for _ in range(number):
            at = [time.perf_counter()]
            handle = solver.send("actor.infer", OBSERVATION)
            at.append(time.perf_counter())
            solver._client().wait(handle)
            at.append(time.perf_counter())
            handle.result()
            at.append(time.perf_counter())
            for name, (start, end) in zip(parts, itertools.pairwise(at), strict=True):
                parts[name].append(end - start)
        worker = solver.call("actor.spent")
    solver.close()
    micro = {name: round(statistics.median(values) * 1e6, 1) for name, values in parts.items()}
    inside = {name: round(value * 1e6, 1) for name, value in worker.items()}
    table = {
        "client: encode and send": micro["encode and send"],
        **{f"worker: {name}": value for name, value in inside.items()},
        "broker, kernel and wake-ups": round(micro["wait"] - sum(inside.values()), 1),
        "client: decode": micro["decode"],
    }
    for name, value in table.items():
        print(f"{name:32} {value:7.1f} us")
    return {"profile_us": table}
