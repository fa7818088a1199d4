"""Roles that are told to stop while their servers are gone, as `docker compose stop` does, end by themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.own_redis import OwnRedis
from support.waiting import until

from workers.runtime.trained import numbered, version_of

PATIENCE = 240.0  # s; a bound against hanging, not an expectation


@pytest.mark.slow
def test_a_learner_and_an_actor_whose_servers_are_gone_stop_with_a_checkpoint(
    own_redis: OwnRedis, tmp_path: Path, run_name: str
) -> None:
    folder = tmp_path / "cartpole" / "t"
    settings = (f"run={run_name}", f"folder={tmp_path}", "trial=t", "sampling=streaming", "env.goal=null")
    environment = {**os.environ, "WARREN_BROKER_URL": own_redis.url, "WARREN_REDIS_URL": own_redis.url}
    metrics = folder / "metrics.jsonl"

    def start(role: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", f"workers.{role}", *settings, "checkpoint_every=100000", "actors=1"]
        return subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)

    processes = [start("learner"), start("actor")]
    try:
        until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 3, "an update", PATIENCE)
        own_redis.kill()
        for process in processes:
            process.terminate()
        logs = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        own_redis.start()
    last = json.loads(metrics.read_text().splitlines()[-1])
    assert [process.returncode for process in processes] == [0, 0], logs
    written = max(map(version_of, numbered(folder / "checkpoints")), default=0)
    assert written >= last["version"], logs[0]
