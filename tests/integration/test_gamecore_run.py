"""Test of a policy trained by games that drive themselves, from the launcher to its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.launched import Launched
from support.training_run import TrainingRun

from workers.servers import Servers
from workers.servers.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "gamecore" / "game.py"


@pytest.mark.slow
def test_a_game_process_that_drives_itself_is_learned_from_through_two_gateways(
    tmp_path: Path, servers: Servers
) -> None:
    port = free_port()
    settings = ("experiment=cartpole_gamecore", f"gateway.port={port}", "actors=2", "env.num_envs=4", "env.goal=null")
    settings += ("total_steps=3000",)
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    secret = {"WARREN_GATEWAY_TOKEN": "open"}
    game = subprocess.Popen(
        [sys.executable, str(EXAMPLE), "--url", f"http://127.0.0.1:{port}", "--token", "open"], text=True
    )
    try:
        with TrainingRun(tmp_path, *settings, environment=secret, **urls) as run:
            assert run.wait() == 0, run.output
    finally:
        game.kill()
        game.wait()
    assert run.output.strip().splitlines()[-1].startswith("finished: 3,"), run.output
    account = json.loads((run.folder / "segments.json").read_text())
    assert account["lost"] == 0 and account["learned"] > 0
    assert {path.name for path in (run.folder / "logs").iterdir()} == {"learner.log", "gateway-0.log", "gateway-1.log"}


@pytest.mark.slow
def test_a_learner_learns_from_a_fake_buffer_in_the_place_of_games(tmp_path: Path, servers: Servers) -> None:
    settings = ("experiment=cartpole_gamecore", "gateway.port=0", "actors=1", "env.goal=null", "total_steps=3000")
    urls = {"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": servers.redis_url}
    with TrainingRun(tmp_path, *settings, environment=urls) as run:
        module, log = "workers.gateway.fakes.buffer", tmp_path / "buffer.log"
        with Launched(log, module, f"run={run.name}", given=urls) as buffer:
            assert run.wait() == 0, run.output + buffer.output
    assert json.loads((run.folder / "segments.json").read_text())["learned"] > 0
