"""Tests of RabbitMQ and Redis restarted during training: it goes on, and no confirmed segment is lost."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import brokers
from support.own_redis import until_it_answers
from support.training_run import TrainingRun

from workers.servers import Servers
from workers.servers.ports import free_port


def logs(run: TrainingRun) -> str:
    return "\n".join(path.read_text() for path in (run.folder / "logs").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_training_goes_on_when_rabbitmq_was_restarted(tmp_path: Path, own_servers: Servers, sampling: str) -> None:
    settings = (f"sampling={sampling}", "env.goal=null", "total_steps=1000000000", "round_timeout=10")
    with TrainingRun(tmp_path, *settings, broker_url=own_servers.broker_url, redis_url=own_servers.redis_url) as run:
        run.after_updates(3)
        brokers.control(own_servers, "stop_app")
        # Longer than a publish is retried, so that the learner's publishing fails during the outage.
        time.sleep(6)
        assert run.process.poll() is None
        brokers.control(own_servers, "start_app")
        run.after_updates(5)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert "ended with status" not in run.output, "a role died of it"
    if sampling == "streaming":
        account = json.loads((run.folder / "segments.json").read_text())
        assert account["lost"] == 0
        assert account["confirmed"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_training_goes_on_when_redis_was_restarted_empty(tmp_path: Path, servers: Servers, sampling: str) -> None:
    port, binary = free_port(), shutil.which("redis-server")
    assert binary is not None
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    redis = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    until_it_answers(port)
    try:
        settings = (f"sampling={sampling}", "env.goal=null", "total_steps=1000000000", "round_timeout=5")
        urls = {"broker_url": servers.broker_url, "redis_url": f"redis://127.0.0.1:{port}/0"}
        with TrainingRun(tmp_path, *settings, **urls) as run:
            run.after_updates(3)
            redis.kill()
            redis.wait()
            time.sleep(1.5)
            redis = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
            run.after_updates(5)
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
        assert "ended with status" not in run.output, "a role died of it"
        versions = [update["version"] for update in run.metrics()]
        assert versions == sorted(set(versions)), "a version was published twice"
    finally:
        redis.kill()
        redis.wait()


@pytest.mark.slow
def test_ctrl_c_ends_a_run_whose_broker_is_gone_for_good(tmp_path: Path, own_servers: Servers) -> None:
    with TrainingRun(
        tmp_path,
        "env.goal=null",
        "total_steps=1000000000",
        broker_url=own_servers.broker_url,
        redis_url=own_servers.redis_url,
    ) as run:
        run.after_updates(2)
        brokers.control(own_servers, "stop_app")
        run.until(lambda: "queues unknown" in run.output)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert "warning: the servers are away, so parts of this run may be left there" in run.output
    assert "Traceback" not in run.output
    assert list((run.folder / "checkpoints").glob("*.safetensors")), "the learner wrote no checkpoint"
