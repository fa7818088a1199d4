"""Test of a league resumed many times, its keeper killed at a random moment of each resume: nothing is lost.

The default is three resumes of 6,000 events:
`WARREN_RESUMES=10 WARREN_RESUME_EVENTS=60000 make test ARGS="tests/faults/test_league_resumes.py -s"`.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import yaml
from safetensors.numpy import save
from support import launched
from support.own_redis import OwnRedis

from league.empirical_game.returns import Cell
from league.models.model import ModelInfo
from league.models.pool import Pool
from league.models.snapshots import Snapshots
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.league_state import LeagueState
from league.state.replay import fold, read_folder
from tasks.app import create_app
from tasks.solver import Solver
from tasks.topology import Topology
from warren.errors import WarrenError
from workers.config.league import LeagueConfig
from workers.leagues.service import begin
from workers.servers import Servers

ROOT = Path(__file__).resolve().parents[2]
RESUMES = int(os.environ.get("WARREN_RESUMES", "3"))
EVENTS = int(os.environ.get("WARREN_RESUME_EVENTS", "6000"))
MODELS = 40
PATIENCE = 120.0  # s
IN_BATCH = 50


class Resumed:
    """The league of one run: its folder, and its store and pool in Redis."""

    def __init__(self, folder: Path, client: redis.Redis, run: str) -> None:
        self.folder, self.run = folder / "p" / "t" / "league", run
        self.store = Store(client, f"warren.{run}:league:", seed=0)
        self.pool = Pool(client, f"warren.{run}:", cache_bytes=0)

    def whole(self) -> tuple[LeagueState, list[Cell], list[tuple[ModelInfo, bytes]]]:
        """Return the league's state, evaluators' returns, and models with their bytes."""
        returns = SharedReturns(self.store.redis, self.store.prefix)
        returns.refresh()
        models = [(info, self.pool.get(*info.ref).data) for info in self.pool.models()]
        return self.store.load(), returns.cells(), models

    def play(self, events: int) -> None:
        """Write a history of `events` events, with snapshots, models, returns and some unfinished matches."""
        rng = np.random.default_rng(0)
        settings = yaml.safe_load((ROOT / "conf/league/rps.yaml").read_text())
        begin(self.store, self.pool, LeagueConfig.from_dict(settings), None)
        names = list(self.store.view().roster.by_slot.values())
        for version in range(MODELS):
            self.pool.put("main", version, version, save({"layer": rng.normal(size=1000).astype(np.float32)}))
            self.pool.freeze("main", version)
            self.store.snapshot("main", version)
        returns = SharedReturns(self.store.redis, self.store.prefix)
        for _ in range(500):
            returns.record(*rng.integers(len(names), len(names) + MODELS, 2), rng.normal(size=100))
        while self.store.stream_length() < events:
            homes = [names[int(number)].name for number in rng.integers(len(names), size=IN_BATCH)]
            matches = self.store.request_many(homes, "actor", 3600.0)
            self.store.report_many([(match.id, str(rng.choice(list("wdl")))) for match in matches[1:]])


@pytest.mark.slow
@pytest.mark.timeout(300 + 120 * RESUMES)
def test_a_league_loses_nothing_when_its_keeper_dies_in_each_resume(
    tmp_path: Path, servers: Servers, own_redis: OwnRedis, run_name: str
) -> None:
    league, rng, seconds = Resumed(tmp_path, own_redis.client, run_name), random.Random(3), []
    league.play(EVENTS)
    Snapshots(league.folder, league.store, league.pool).save()
    topology = Topology(run_name)
    solver = Solver(create_app(topology, servers.broker_url, own_redis.url), topology)
    environment = {
        **os.environ,
        **{"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": own_redis.url, "PYTHONPATH": str(ROOT)},
    }

    def worker(number: int) -> launched.Process:
        words = ("league=rps", f"run={run_name}", f"folder={tmp_path}", "project=p", "trial=t", f"league_id={number}")
        return launched.start("workers.league", *words, log=tmp_path / f"league-{number}.log", given=environment)

    def until(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (tmp_path / "league-0.log").read_text()[-3000:]
            time.sleep(0.001)

    for _ in range(RESUMES):
        expected = league.whole()
        own_redis.client.flushall()
        keeper, other = worker(0), worker(1)
        try:
            killed_at = kill_midway(keeper, league, rng, until)
            assert not league.store.is_ready() or killed_at == "ready"
            started, index = time.monotonic(), league.folder / "models.json"
            before = index.stat().st_mtime_ns
            keeper = worker(0)
            until(league.store.is_ready)
            found = league.whole()
            assert expected[0].differences(found[0]) == []
            assert list(found[0].players) == list(expected[0].players)
            assert found[1:] == expected[1:]
            match = first_match(solver, until)
            seconds.append(round(time.monotonic() - started, 1))
            solver.call("league.abort", match, "test")
            until(lambda before=before, index=index: index.stat().st_mtime_ns > before)  # it has saved the folder
        finally:
            for process in (other, keeper):
                process.terminate()
                process.wait()
        saved = fold(read_folder(league.folder))
        assert league.store.load().differences(saved) == []
        assert saved.counters["counted"] == expected[0].counters["counted"]
    solver.close()
    print(
        f"\n{EVENTS} events, {RESUMES} resumes; s from the restart to the first match, with starting Python: {seconds}"
    )


def kill_midway(
    keeper: launched.Process, league: Resumed, rng: random.Random, until: Callable[[Callable[[], Any]], None]
) -> str:
    """Kill the keeper at a random moment of its restore; return which."""
    moments: dict[str, Callable[[], Any]] = {
        "started": lambda: True,
        "models": lambda: league.pool.redis.hlen(f"{league.pool.prefix}newest"),
        "some models": lambda: league.pool.redis.zcard(f"{league.pool.prefix}used") > rng.randrange(MODELS),
        "league": league.store.exists,
        "ready": league.store.is_ready,
    }
    moment = rng.choice(list(moments))
    if moment == "started":
        time.sleep(rng.uniform(0.0, 3.0))
    until(moments[moment])
    keeper.kill()
    keeper.wait()
    return "ready" if league.store.is_ready() else moment


def first_match(solver: Solver, until: Callable[[Callable[[], Any]], None]) -> str:
    """Request a match until one is issued; return its id."""
    given: list[str] = []

    def asked() -> bool:
        try:
            answer = solver.call("league.request", "main", "test", 60.0, secrets.token_hex(8), deadline=10.0)
        except WarrenError:
            return False
        given.append(answer["match"]["match"])
        return True

    until(asked)
    return given[0]
