"""The cost of a match as a league grows: through a league worker, with opponents loaded as an actor does.

Every frozen player has weights of its own in the pool (an MLP of 64 x 64, 37 KB). One actor asks for a match, loads the
opponent if it is not loaded yet, reports, and asks again. Nothing is played: only the work around a match is measured.
"""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import psutil
import redis
import torch

from agents import build_policy
from agents.checkpoints import encode_weights, load_weights, weights_from_bytes
from agents.policies import Policy
from benchmarks.apparatus.points import Points, TimeLeft
from benchmarks.calls.peers import started
from benchmarks.growth.runs import GREW
from benchmarks.league.speed import HUNTERS, league_of
from league.matchmaking.view import ModelRef
from league.models.pool import LEAGUE, Pool
from tasks.app import create_app
from tasks.topology import Topology
from workers.leagues.client import LeagueClient
from workers.runtime.policy_cache import FrozenPolicies
from workers.runtime.session import Session

PLAYERS = (4, 30, 100, 300, 1000)
FROZEN = 1000
LEASE = 600.0  # s
OBSERVATION, ACTION = gymnasium.spaces.Box(-1, 1, (4,), np.float32), gymnasium.spaces.Discrete(2)


def players(
    broker_url: str, redis_url: str, matches: int, rounds: int, time_left: TimeLeft, points: Points
) -> dict[str, Any]:
    """Return figures by the number of players, medians over rounds in one league of each size."""
    table = {}
    for number in PLAYERS:
        each = measure(broker_url, redis_url, number, matches, rounds, time_left, points)
        if each:
            table[str(number)] = _medians(each) | {"rounds": len(each)}
    if not table:
        return {"players": {}}
    first, last = (list(table.values())[place] for place in (0, -1))
    constant = ("to_a_match_p50_ms", "report_p50_ms", "worker_us", "redis_us", "round_trips")
    grew = {name: round(last[name] / first[name], 2) for name in constant if last[name] > GREW * first[name]}
    return {"players": {**table, "matches": matches, "grew": grew}}


def opponents(
    broker_url: str, redis_url: str, matches: int, rounds: int, time_left: TimeLeft, points: Points
) -> dict[str, Any]:
    """Return the loads of a match and the time to a match with FROZEN models."""
    each = measure(broker_url, redis_url, FROZEN + 2, matches, rounds, time_left, points)
    medians = _medians(each) if each else {}
    return {"opponents": {"frozen": FROZEN, "matches": matches, "rounds": len(each), **medians}}


def measure(
    broker_url: str, redis_url: str, number: int, matches: int, rounds: int, time_left: TimeLeft, points: Points
) -> list[dict[str, float]]:
    """Return rounds in one league of `number` players, of which two learn: kept ones, or as many as time allows."""
    known = points.get(players=number, matches=matches, rounds=rounds)
    if known is not None:
        return list(known)
    if not time_left.fits(f"{number} players"):
        return []
    found: list[dict[str, float]] = []
    with time_left.timed(), _league(broker_url, redis_url, number) as given:
        for turn in range(rounds):
            began = time.monotonic()
            found.append(_played(*given, matches))
            print(f"players {number}, round {turn + 1}: {found[-1]}", flush=True)
            if time_left.left < time.monotonic() - began:
                break
    if len(found) == rounds:
        points.add(found, players=number, matches=matches, rounds=rounds)
    return found


@contextmanager
def _league(
    broker_url: str, redis_url: str, number: int
) -> Iterator[tuple[Session, Pool, redis.Redis, psutil.Process]]:
    """Run a league worker's process; yield it, and what an actor needs."""
    torch.set_num_threads(1)  # like an actor; two would wait for each other on a busy machine at each network built
    began = time.monotonic()
    topology = Topology(f"bench-growth-{os.getpid()}-{secrets.token_hex(3)}")
    client = redis.Redis.from_url(redis_url)
    client.flushdb()
    league_of(client, f"{topology.key_prefix}league:", number)
    pool = Pool(client, topology.key_prefix, cache_bytes=0)
    for version in range(number - 2):
        player = "hunter" if version < HUNTERS else "main"
        weights = {"player": player, "version": version, "step": version, "behaviour": {}}
        pool.put(player, version, version, encode_weights(_build(version).state_dict(), weights))
        pool.freeze(player, version, LEAGUE)
    session: Any = type("Session", (), {})()  # the part of a session that a client uses
    session.app, session.topology = create_app(topology, broker_url, redis_url), topology
    command = [sys.executable, "-m", "benchmarks.league.tasks", broker_url, redis_url, topology.run, "0"]
    with started(command) as worker:
        print(f"a league of {number} took {time.monotonic() - began:.1f} s to make", flush=True)
        yield session, pool, client, psutil.Process(worker.pid)


def _played(
    session: Session, pool: Pool, client: redis.Redis, worker: psutil.Process, matches: int
) -> dict[str, float]:
    league = LeagueClient(session, "bench", threading.Event())
    loads = [0]

    def frozen(model: ModelRef, data: bytes) -> Policy:
        loads[0] += 1
        policy = _build(0).requires_grad_(False)
        load_weights(policy, weights_from_bytes(data)[0], str(model))
        return policy

    policies = FrozenPolicies(pool, frozen)
    to_a_match: list[float] = []
    reporting: list[float] = []
    frozen = 0
    league.report(league.request("main", LEASE)[0], "w")  # connects
    asked, used = client.info(), worker.cpu_times()
    for turn in range(matches):
        began = time.perf_counter()
        match, model = league.request("main", LEASE)
        if model is not None:
            frozen += 1
            policies[model]
        ready = time.perf_counter()
        league.report(match, "wdl"[turn % 3])
        to_a_match.append(ready - began)
        reporting.append(time.perf_counter() - ready)
    then, after = client.info(), worker.cpu_times()
    percentiles = np.percentile(to_a_match, (50, 95))
    by_redis = sum(then[name] - asked[name] for name in ("used_cpu_user", "used_cpu_sys"))
    return {
        "to_a_match_p50_ms": round(1e3 * float(percentiles[0]), 2),
        "to_a_match_p95_ms": round(1e3 * float(percentiles[1]), 2),
        "report_p50_ms": round(1e3 * statistics.median(reporting), 2),
        "loads_a_match": round(loads[0] / matches, 3),
        "against_frozen": round(frozen / matches, 3),
        "loaded_mb": round(policies.bytes / 1e6, 1),
        "worker_us": round(1e6 * (sum(after[:2]) - sum(used[:2])) / matches),
        "redis_us": round(1e6 * by_redis / matches),
        "round_trips": round((then["total_reads_processed"] - asked["total_reads_processed"]) / matches, 1),
    }


def _build(seed: int) -> Policy:
    return build_policy({"name": "mlp"}, OBSERVATION, ACTION, seed)


def _medians(each: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in each) for name in each[0]}
