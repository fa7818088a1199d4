"""The league under kills: no match is lost or counted twice, and no acknowledged result is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import support
from support.own_redis import OwnRedis
from support.store_fixtures import assert_replayed
from support.waiting import until

from league.redis.store import Store

ROOT = Path(__file__).resolve().parents[3]
KILLS = 18


@pytest.mark.slow
def test_every_match_ends_once_though_actors_workers_and_redis_are_killed(
    own_redis: OwnRedis, run_name: str, tmp_path: Path
) -> None:
    store = Store(own_redis.client, f"{run_name}:league:", seed=0)
    store.create()
    store.add_player("main", "main_agent")
    store.add_player("hunter", "main_exploiter")
    store.snapshot("main", 0)
    store.request("main", "an actor that never answers", 0.001)
    rng = np.random.default_rng(1)

    def start(number: int) -> subprocess.Popen[bytes]:
        arguments = [own_redis.url, store.prefix, str(tmp_path / f"acknowledged-{number}"), str(number)]
        script = support.FOLDER / "actor_process.py"
        return subprocess.Popen([sys.executable, str(script), *arguments], env={**os.environ, "PYTHONPATH": str(ROOT)})

    def counted(more: int) -> None:
        wanted = store.counters().get("counted", 0) + more
        until(lambda: store.counters().get("counted", 0) >= wanted)

    actors = {number: start(number) for number in range(3)}
    try:
        for kill in range(KILLS):
            counted(int(rng.integers(5, 60)))
            if kill in (KILLS // 3, 2 * KILLS // 3):
                own_redis.kill()
                own_redis.start()
                continue
            victim = sorted(actors)[int(rng.integers(3))]
            os.kill(actors[victim].pid, signal.SIGKILL)
            actors.pop(victim).wait()
            actors[3 + kill] = start(3 + kill)
    finally:
        for process in actors.values():
            process.kill()
            process.wait()
    until(lambda: store.expire() == 0 and not store.open_matches())

    live, counters = assert_replayed(store), store.counters()
    assert counters["issued"] == counters["counted"] + counters["expired"] + counters["aborted"] > 500
    assert live.matches == {}
    ends: Counter[str] = Counter()
    as_counted: set[str] = set()
    for _, event in store.events():
        if event["event"] == "ended":
            ends[event["match"]] += 1
            if event["as"] == "counted":
                as_counted.add(event["match"])
    issued = {event["match"] for _, event in store.events() if event["event"] == "issued"}
    assert set(ends) == issued and set(ends.values()) == {1} and len(as_counted) == counters["counted"]
    acknowledged = [line for path in tmp_path.glob("acknowledged-*") for line in path.read_text().splitlines()]
    assert set(acknowledged) <= as_counted
    # A repeated report is refused as a duplicate, so no match is acknowledged twice.
    assert len(acknowledged) == len(set(acknowledged))
