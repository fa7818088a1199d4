"""Test of roles stopped after their servers are gone, as by `docker compose stop`: they end by themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.launched import Launched
from support.own_redis import OwnRedis
from support.waiting import until

from workers.runtime.trained import numbered, version_of

PATIENCE = 240.0  # s; only a test that hangs reaches it


@pytest.mark.slow
def test_a_learner_and_an_actor_whose_servers_are_gone_stop_with_a_checkpoint(
    own_redis: OwnRedis, tmp_path: Path, run_name: str
) -> None:
    folder = tmp_path / "cartpole" / "t"
    settings = (f"run={run_name}", f"folder={tmp_path}", "trial=t", "sampling=streaming", "env.goal=null")
    environment = {"WARREN_BROKER_URL": own_redis.url, "WARREN_REDIS_URL": own_redis.url}
    metrics = folder / "metrics.jsonl"

    def start(role: str) -> Launched:
        words = (*settings, "total_steps=1000000000", "checkpoint_every=100000", "actors=1")
        return Launched(tmp_path / f"{role}.log", f"workers.{role}", *words, given=environment)

    roles = [start("learner"), start("actor")]
    try:
        until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3, "an update", PATIENCE)
        own_redis.kill()
        for role in roles:
            role.process.terminate()
        assert [role.wait(PATIENCE) for role in roles] == [0, 0], [role.output for role in roles]
    finally:
        for role in roles:
            role.process.kill()
            role.process.wait()
        own_redis.start()
    last = json.loads(metrics.read_text().splitlines()[-1])
    written = max(map(version_of, numbered(folder / "checkpoints")), default=0)
    assert written >= last["version"], roles[0].output
