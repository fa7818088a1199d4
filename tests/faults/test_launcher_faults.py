"""Tests of a launcher under faults: a second launcher, bad events, killed servers, other hosts, SIGKILL."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis
from support import launched
from support.league_run import LeagueOfRun, check_books
from support.own_redis import until_it_answers
from support.own_run import HOSTLESS, OwnRun, write
from support.training_run import TrainingRun
from support.waiting import until

from tasks.app import create_app
from tasks.events import STATUS, EventDispatcher
from tasks.topology import Topology
from workers.launch.processes import failure_log
from workers.servers import Servers, record
from workers.servers.ports import free_port

ENDLESS = ("env.goal=null", "total_steps=100000000", "unroll_length=32", "algorithm.minibatch_size=64")
BAD = (
    *({"steps": "many"}, {"steps": None}, {"steps": 1e400}, {"mean_return": [1]}, {"steps": 7}, {"state": 3}),
    *(None, 5, "figures", [1, 2], {}, {"players": {}}, {"losses": "all"}),
)


def urls(servers: Servers) -> dict[str, str]:
    return {"broker_url": servers.broker_url, "redis_url": servers.redis_url}


def command(servers: Servers, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return launched.command(module, *arguments, given=servers.environment())


def stop(run: TrainingRun) -> None:
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.output
    assert f"stopped; go on with: python -m workers.train resume={run.folder}" in run.output
    assert json.loads((run.folder / "outcome.json").read_text())["state"] == "stopped"


@pytest.mark.slow
def test_a_second_launcher_on_a_live_run_changes_nothing_of_it(tmp_path: Path, servers: Servers) -> None:
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", **urls(servers)) as run:
        run.after_updates(2)
        config = (run.folder / "config.yaml").read_text()
        (run.folder / "outcome.json").write_text('{"state": "as it was"}')
        for arguments in ((f"resume={run.folder}",), (f"folder={tmp_path}", "project=project", "trial=t", "actors=3")):
            second = command(servers, "workers.train", *arguments)
            assert second.returncode == 2, second.stdout + second.stderr
            holder = rf"another run uses the folder \S+project/t \(process {run.process.pid} on "
            assert re.search(holder, second.stderr) and len(second.stderr.splitlines()) == 1
        assert (run.folder / "config.yaml").read_text() == config
        assert "as it was" in (run.folder / "outcome.json").read_text()
        run.role("actor-0").kill()  # its successor reads the folder's configuration
        run.until(lambda: "restarting actor-0" in run.output)
        run.after_updates(3)
        stop(run)


@pytest.mark.slow
def test_the_launcher_ignores_malformed_events(tmp_path: Path, servers: Servers) -> None:
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", **urls(servers)) as run:
        run.after_updates(2)
        topology = Topology(run.name)
        events = EventDispatcher(create_app(topology, servers.broker_url, servers.redis_url), topology)
        for payload in BAD:
            events.fire(STATUS, payload)
            time.sleep(0.05)  # without a pause, only the newest would arrive
        events.close()
        run.after_updates(3)
        stop(run)
    assert "Traceback" not in run.output and "ended with status" not in run.output


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["gathered", "streaming"])
def test_private_servers_that_are_killed_come_back_and_the_run_goes_on(tmp_path: Path, sampling: str) -> None:
    settings = ("broker=private", "actors=1", f"sampling={sampling}", "round_timeout=15")
    with TrainingRun(tmp_path, *ENDLESS, *settings) as run:
        run.after_updates(3)
        for program, said in (("beam.smp", "private RabbitMQ"), ("redis-server", "private Redis")):
            server = next(one for one in run.children(lambda line, program=program: program in line[0]))
            server.kill()
            run.until(lambda said=said: f"starting {said} again, with its data" in run.output)
            run.after_updates(5)
        stop(run)
    kept = [one["name"] for one in failure_log.read(run.folder) if one["status"] == 137]
    assert kept == ["private RabbitMQ", "private Redis"]
    versions = [update["version"] for update in run.metrics()]
    assert versions == sorted(set(versions)), "a version was published twice"
    if sampling == "streaming":
        assert json.loads((run.folder / "segments.json").read_text())["lost"] == 0
    leftovers = [run.folder / "servers" / name for name in ("rabbitmq/data", "redis/appendonlydir")]
    assert not any(path.exists() for path in leftovers), "servers' data is left of a run that is over"


@pytest.mark.servers
@pytest.mark.slow
def test_a_league_loses_nothing_when_its_private_redis_is_killed(tmp_path: Path) -> None:
    with LeagueOfRun(tmp_path, "broker=private") as run:
        run.until(lambda: "; Redis: " in run.output)  # printed once the record is written
        store = run.store(record.read(run.folder).redis_url)
        run.until(lambda: "main@0" in store.view().roster and store.counters().get("counted", 0) > 0)
        for _ in range(2):
            before = check_books(store)
            server = next(one for one in run.children(lambda line: "redis-server" in line[0]))
            server.kill()
            run.until(lambda server=server: not server.is_running())

            def counted(more: int = before["counted"] + 5) -> bool:
                try:
                    return store.counters().get("counted", 0) >= more
                except redis.RedisError:
                    return False

            run.until(counted)
            after = check_books(store)
            assert after["games"] > before["games"]
        stop(run)
    assert run.output.count("starting private Redis again, with its data") == 2


@pytest.mark.slow
def test_an_actor_that_is_paused_is_named(tmp_path: Path, servers: Servers) -> None:
    with TrainingRun(tmp_path, *ENDLESS, "actors=2", "round_timeout=300", **urls(servers)) as run:
        run.after_updates(3)
        actor = run.role("actor-1")
        actor.suspend()
        try:
            run.until(lambda: "actor-1 is stopped (SIGSTOP)" in run.output)
        finally:
            actor.resume()
        run.after_updates(3)
        stop(run)


@pytest.mark.slow
def test_a_long_redis_outage_does_not_exhaust_restarts(tmp_path: Path, servers: Servers) -> None:
    port, binary = free_port(), shutil.which("redis-server")
    assert binary is not None
    line = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([*line, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)

    server = start()
    until_it_answers(port)
    try:
        given = {"broker_url": servers.broker_url, "redis_url": f"redis://127.0.0.1:{port}/0"}
        with TrainingRun(tmp_path, *ENDLESS, "actors=1", "restarts=1", "round_timeout=10", **given) as run:
            run.after_updates(3)
            server.kill()
            server.wait()
            # The outage lasts twice as long as a process waits for Redis: enough to exhaust one restart.
            learner = run.folder / "logs" / "learner.log"
            run.until(lambda: learner.read_text().count("the pool cannot be looked after") >= 2, 240.0)
            assert run.process.poll() is None and "Redis is away for" in run.output, run.output
            server = start()
            run.after_updates(5)
            stop(run)
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_a_leader_that_was_suspended_leaves_its_successors_run_alone(
    tmp_path: Path, servers: Servers, run_name: str, rabbitmqctl: Callable[..., list[str]]
) -> None:
    client = redis.Redis.from_url(servers.redis_url)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with OwnRun(write(tmp_path / "one", HOSTLESS), servers, f"run={run_name}", label="first") as first:
        first.until(lambda: "played 20" in first.logged("play-0"))
        launcher = psutil.Process(first.process.pid)
        launcher.suspend()
        try:
            for process in launcher.children(recursive=True):  # the name is taken while one of them lives
                process.kill()
            client.pexpire(f"warren.{run_name}:leader", 1)  # the lease expires while the launcher is suspended
            first.until(lambda: not client.exists(f"warren.{run_name}:leader"))
            with OwnRun(write(tmp_path / "two", HOSTLESS), servers, f"run={run_name}", label="second") as second:
                second.until(lambda: client.exists(f"warren.{run_name}:leader"))
                launcher.resume()
                assert first.wait() == 1, first.output
                assert re.search(r"process \d+ on \S+ has taken this one's place", first.output)
                assert client.exists(f"warren.{run_name}:leader"), "the successor's lease is gone"
                second.until(lambda: "played 1" in second.logged("play-0"))
                queue = f"warren.{run_name}.service.adder.add"  # the successor's, which the first launcher left alone
                second.until(lambda: queue in rabbitmqctl("list_queues", "name"))
                (tmp_path / "two" / "go").touch()
                assert second.wait() == 0, second.output
        finally:
            launcher_runs = first.process.poll() is None
            if launcher_runs:
                launcher.resume()
    assert list(client.scan_iter(f"warren.{run_name}:*")) == []


@pytest.mark.slow
def test_a_leader_whose_stop_outlasts_its_lease_keeps_it(tmp_path: Path, servers: Servers) -> None:
    client = redis.Redis.from_url(servers.redis_url)
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", "grace=150", **urls(servers)) as run:
        run.after_updates(2)
        key, actor = f"warren.{run.name}:leader", run.role("actor-0")
        actor.suspend()
        run.process.send_signal(signal.SIGINT)
        run.until(lambda: b'"status": 130' in (client.get(key) or b""))
        for _ in range(2):  # far into the stop, which waits for the actor
            client.pexpire(key, 3000)
            run.until(lambda: client.pttl(key) > 6000)
        assert run.process.poll() is None
        assert "stop it first" in command(servers, "workers.runs", "purge", run.name, "--yes").stderr
        actor.resume()
        assert run.wait() == 130, run.output
        assert list(client.scan_iter(f"warren.{run.name}:*")) == []


@pytest.mark.slow
def test_leftovers_of_a_killed_launcher_are_listed_and_purged(
    tmp_path: Path, servers: Servers, rabbitmqctl: Callable[..., list[str]]
) -> None:
    client = redis.Redis.from_url(servers.redis_url)
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", **urls(servers)) as run:
        run.after_updates(2)
        name = run.name
        listed = command(servers, "workers.runs")
        assert f"{name}: training, led by process {run.process.pid} on " in listed.stdout
        assert "stop it first" in command(servers, "workers.runs", "purge", name, "--yes").stderr
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
    until(lambda: not client.exists(f"warren.{name}:leader"), "the end of the lease")
    gone = f"{name}: training whose launcher is gone; it left "
    until(lambda: gone in command(servers, "workers.runs").stdout, gone)  # its guards have ended its processes
    assert "did you mean" in command(servers, "workers.runs", "purge", f"{name}x").stderr
    refused = command(servers, "workers.runs", "stop", name)
    assert refused.returncode == 2 and "its launcher is gone" in refused.stderr
    assert "add --yes" in command(servers, "workers.runs", "purge", name).stderr
    purged = command(servers, "workers.runs", "purge", name, "--yes")
    assert purged.returncode == 0 and f"removed run {name}" in purged.stdout, purged.stderr
    assert list(client.scan_iter(f"warren.{name}:*")) == []
    for kind in ("list_queues", "list_exchanges"):
        assert [left for left in rabbitmqctl(kind, "name") if left.startswith(f"warren.{name}.")] == []


@pytest.mark.slow
def test_a_run_is_stopped_by_its_name_and_keeps_the_count_it_was_scaled_to(tmp_path: Path, servers: Servers) -> None:
    with TrainingRun(tmp_path, *ENDLESS, "actors=1", "env.num_envs=4", **urls(servers)) as run:
        run.after_updates(2)
        assert "actors=2" in command(servers, "workers.scale", "--run", run.name, "actors=+1").stdout
        assert "told the run to stop" in command(servers, "workers.runs", "stop", run.name).stdout
        assert run.wait() == 130, run.output
    with TrainingRun(tmp_path, f"resume={run.folder}", trial="again", **urls(servers)) as again:
        again.role("actor-1")
        again.process.send_signal(signal.SIGINT)
        assert again.wait() == 130


@pytest.mark.slow
def test_actors_and_a_learner_run_on_another_host_that_joins_and_leaves(
    tmp_path: Path, servers: Servers, run_name: str
) -> None:
    given = {"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": servers.redis_url}
    joining = (f"run={run_name}", "host=box-2", f"folder={tmp_path}")
    with launched.Launched(tmp_path / "box.log", "workers.train", *joining, given=given) as box:
        box.until(lambda: f"waiting for run {run_name}" in box.output)
        hosts = "hosts={master: {actors: 1, learners: 1}, box-2: {actors: 1, learners: 1}}"
        with TrainingRun(tmp_path, *ENDLESS, hosts, f"run={run_name}", **urls(servers)) as run:
            run.until(lambda: "host box-2 has joined" in run.output)
            run.until(lambda: box.children(lambda line: "workers.actor" in line and "actor_id=1" in line))
            run.role("actor-0")
            assert not run.children(lambda line: "actor_id=1" in line)
            run.after_updates(5)
            log = run.folder / "logs" / "learner.log"
            run.until(lambda: "rank 0 of 2, generation" in log.read_text())
            assert "actors=2" in command(servers, "workers.scale", "--run", run_name).stdout

            def there() -> list[psutil.Process]:
                return box.children(lambda line: "workers.actor" in line or "learner_id=1" in line)

            processes = box.until(lambda: len(found := there()) == 2 and found)
            stop(run)
            assert box.wait() == 130, box.output
    assert not any(process.is_running() for process in processes)
    assert list(redis.Redis.from_url(servers.redis_url).scan_iter(f"warren.{run_name}:*")) == []


@pytest.mark.slow
def test_a_run_on_a_full_disk_ends_with_an_outcome_and_no_partial_files(tmp_path: Path, servers: Servers) -> None:
    small = tmp_path / "small"
    small.mkdir()  # the launcher's output, which the test reads, goes elsewhere
    mounting = ["mount", "-t", "tmpfs", "-o", "size=320m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk takes a mount, which needs root")
    try:
        often = ("actors=1", "checkpoint_every=0.5", "restarts=2", f"folder={small}")
        with TrainingRun(tmp_path, *ENDLESS, *often, **urls(servers)) as run:
            run.folder = small / "project" / "t"
            run.after_updates(3)
            with (small / "filler").open("wb") as filler:
                for size in (1 << 20, 1 << 12):
                    with contextlib.suppress(OSError):
                        while True:
                            os.write(filler.fileno(), bytes(size))
            run.until(lambda: "No space left" in run.output)
            run.process.send_signal(signal.SIGINT)
            run.wait(120)
        outcome = json.loads((run.folder / "outcome.json").read_text())
        assert outcome["state"] in ("stopped", "failed")
        assert not list(run.folder.rglob("*.tmp"))
        assert f"go on with: python -m workers.train resume={run.folder}" in run.log.read_text()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
