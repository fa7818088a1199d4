"""Tests that a run without a launcher lives as long as any of its processes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import redis
from support.launched import Launched
from support.roles_by_hand import PATIENCE, Roles
from support.training_run import TrainingRun
from support.waiting import until

from tasks.topology import key_prefix
from warren.errors import ConfigurationError
from workers.launch.traces import runs
from workers.runtime.lease import living
from workers.servers import Servers

GAME = Path(__file__).parents[2] / "examples" / "gamecore" / "actor.py"
OWN = """
import time
from tasks.service import Worker, service

class Own(Worker):
    @service
    def ask(self) -> int:
        return 1

def wait():
    time.sleep(600)
"""
STARTS = 240.0  # s; seven processes import torch at once


@pytest.mark.slow
def test_every_process_keeps_its_run_from_being_purged_until_it_ends(
    servers: Servers, tmp_path: Path, run_name: str
) -> None:
    client = redis.Redis.from_url(servers.redis_url)
    (tmp_path / "own.py").write_text(OWN)
    roles = Roles(servers, tmp_path, run_name)
    environment = {**servers.environment(), "WARREN_RUN": run_name}

    def works() -> list[str]:
        return [re.sub(r"^(service .*)-\d+$", r"\1", holder.work) for holder in living(client, key_prefix(run_name))]

    def own(module: str, place: str) -> Launched:
        place = f"{tmp_path / 'own.py'}:{place}"
        return Launched(tmp_path / f"{module}.log", f"workers.{module}", place, given=environment)

    others: list[Launched] = []
    try:
        started = [
            roles.start("actor"),
            roles.start("gateway", f"env.id=gamecore:{GAME}:CartPole", "sampling=streaming", "gateway.port=0"),
            roles.start("env", "sampling=served"),
            roles.start("league", "league=rps"),
            roles.start("evaluator", "league=rps"),
        ]
        others += [own("serve", "Own"), own("script", "wait")]
        expected = ["actor-0", "env-0", "evaluator-0", "gateway-0", "league-0"]
        expected += ["script own.py", "service Own-0"]

        def all_there() -> bool:
            ended = [one.output for one in [*started, *others] if one.process.poll() is not None]
            assert not ended, (ended, works())
            return works() == expected

        until(all_there, f"{expected}", STARTS)
        found = runs.find(run_name, [runs.Servers(servers.broker_url, servers.redis_url)])
        assert "running, without a launcher: actor-0 (process " in found.describe()
        for one in (started[0], started[3], *others):
            one.process.kill()
            one.process.wait()
        gone = ("actor-0", "league-0", "script own.py", "service Own-0")
        assert works() == [work for work in expected if work not in gone], "a killed process still counts"
        with pytest.raises(ConfigurationError, match="is running: env-0 "):
            runs.purge(found)
        for one in started:
            one.process.terminate()
        for one in started:
            one.wait(STARTS)
        assert works() == []
        runs.purge(found)
        assert list(client.scan_iter(f"{key_prefix(run_name)}*")) == []
    finally:
        roles.close()
        for one in others:
            one.process.kill()
            one.process.wait()


@pytest.mark.slow
def test_an_actor_started_by_hand_takes_a_number_and_the_runs_settings(servers: Servers, tmp_path: Path) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    settings = ("sampling=streaming", "env.id=Acrobot-v1", "env.num_envs=4", "env.goal=null", "actors=1")
    settings += ("total_steps=1000000000",)
    client = redis.Redis.from_url(servers.redis_url)
    with TrainingRun(tmp_path, *settings, **urls) as run:

        def by_hand(log: str, *overrides: str) -> Launched:
            words = (f"run={run.name}", *overrides)
            return Launched(tmp_path / log, "workers.actor", *words, given=servers.environment())

        run.until(lambda: run.metrics())
        more, wrong = by_hand("more"), by_hand("wrong", "env.id=CartPole-v1")
        try:
            assert wrong.wait(PATIENCE) == 2
            works = run.until(lambda: len(found := living(client, key_prefix(run.name))) == 3 and found)
            run.after_updates(5)
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
            assert more.wait(PATIENCE) == 0
        finally:
            for one in (more, wrong):
                one.process.kill()
    assert [holder.work for holder in works] == ["actor-0", "actor-1000", "learner of player main"]
    assert [line for line in wrong.output.splitlines() if "error" in line] == [
        f"error: env.id: CartPole-v1 here, but run {run.name} has Acrobot-v1; leave env.id out, and this process takes "
        "the run's"
    ]
    log = more.output
    assert "Traceback" not in log and "ResourceLocked" not in log, log
    assert f"this is actor-1000 of run {run.name}" in log
    run.account()
