"""Tests of a whole league on real servers: it plays, learns, freezes, evaluates, stops and goes on from its folder."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.league_run import LeagueOfRun, check_books
from support.own_redis import until_it_answers
from support.waiting import until

from league.state.replay import fold, read_file
from workers.servers import Servers
from workers.servers.ports import free_port


@pytest.fixture
def another_redis(servers: Servers, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of an empty Redis on a port of its own."""
    port, binary = free_port(), shutil.which("redis-server")
    assert binary is not None
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until_it_answers(port)
    yield f"redis://127.0.0.1:{port}/0"
    server.kill()
    server.wait()


@pytest.mark.slow
def test_a_league_plays_obeys_commands_stops_and_resumes_to_its_goal(
    tmp_path: Path, servers: Servers, rabbitmqctl: Callable[..., list[str]], another_redis: str
) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, **urls) as run:
        store = run.store(servers.redis_url)
        run.until(lambda: len(store.view().roster.snapshots_of("main")) >= 3)
        run.until(lambda: any(score["mixture"] is not None and score["frozen"] >= 3 for score in run.scores()))
        run.until(lambda: store.load().counters["counted"] > 20)
        check_books(store)
        run.until(lambda: "main@0" in {event["away"] for _, event in store.events() if event["event"] == "issued"})
        prefix = f"warren.{run.name}"
        run.until(lambda: f"{prefix}.learner.main_exploiter" in rabbitmqctl("list_queues", "name"))

        # A person pauses, adds, resumes and freezes players.
        store.pause("main_exploiter")
        log = run.folder / "logs" / "learner-main_exploiter.log"
        run.until(lambda: re.search("player main_exploiter: (paused|waiting)", log.read_text()))
        store.add_player("late", "pfsp")
        run.until(lambda: "player late was added" in run.output)
        run.until(lambda: len(store.view().roster.snapshots_of("late")) >= 1)
        paused_at = store.load().progress["main_exploiter"].steps
        store.resume("main_exploiter")
        run.until(lambda: store.load().progress["main_exploiter"].steps > paused_at)
        roster = store.view().roster
        model = roster.by_slot[int(roster.snapshots_of("late")[-1])].model
        assert model is not None
        store.freeze("late", model)
        run.until(lambda: "learner-late has done its work" in run.output)
        check_books(store)
        for name in ("payoff", "ratings", "lineage", "exploitability"):
            run.until((run.folder / "pictures" / f"{name}.png").exists)
        run.until(lambda: list((run.folder / "tensorboard" / "league").glob("events*")))
        run.until(lambda: store.load().progress["league_exploiter_0"].steps > 0)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert run.output.strip().splitlines()[-1].startswith("stopped; go on with")
    assert "Traceback" not in run.output
    assert "ended with status" not in run.output
    for kind in ("list_queues", "list_exchanges"):  # the broker removes exclusive queues a moment later
        until(lambda kind=kind: not [line for line in rabbitmqctl(kind, "name") if line.startswith(prefix)])
    assert not list(redis.Redis.from_url(servers.redis_url).scan_iter(f"{prefix}:*"))

    # It goes on from its folder, on another, empty Redis.
    before = fold(read_file(run.folder / "league" / "league.jsonl"))
    more = f"total_steps={sum(progress.steps for progress in before.progress.values()) + 60_000}"
    urls = {"broker_url": servers.broker_url, "redis_url": another_redis}
    with LeagueOfRun(tmp_path, f"resume={run.folder}", more, trial="again", **urls) as again:
        assert again.wait(600.0) == 0, again.output
    lines = again.output.strip().splitlines()
    assert lines[-1].startswith("finished: ")
    assert "exploitability: Nash mixture" in lines[-3]
    assert lines[-2].startswith("play against it: ")
    assert json.loads((run.folder / "outcome.json").read_text())["state"] == "finished"
    after = fold(read_file(run.folder / "league" / "league.jsonl"))
    assert list(after.players)[: len(before.players)] == list(before.players), "players changed slots"
    for name in ("main", "league_exploiter_0"):
        assert after.progress[name].steps > before.progress[name].steps > 0
    assert after.counters["counted"] > before.counters["counted"]
    assert "error" not in "".join(path.read_text() for path in (run.folder / "logs").glob("learner*.log")).lower()


@pytest.mark.slow
def test_a_league_runs_without_rabbitmq(tmp_path: Path, embedded_url: str) -> None:
    with LeagueOfRun(tmp_path, broker_url=embedded_url, redis_url=embedded_url) as run:
        store = run.store(embedded_url)
        run.until(lambda: len(store.view().roster.snapshots_of("main")) >= 2)
        check_books(store)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    assert "ended with status" not in run.output
