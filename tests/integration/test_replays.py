"""Tests of a league on real servers that records all matches: each one's replay has the recorded result."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from support import launched
from support.league_run import LeagueOfRun

from league.state.replay import read_file
from workers.replays import folder
from workers.replays.recorded_run import RecordedRun
from workers.servers import Servers

RULES = ("league.replay_every=1", "league.replay_evaluations=1", "league.replay_upsets=0.6")


def play(run: LeagueOfRun, store: Any, matches: int) -> None:
    """Wait until `matches` more matches have counted."""
    before = store.counters().get("counted", 0)
    run.until(lambda: store.counters().get("counted", 0) >= before + matches)


def end(run: LeagueOfRun) -> None:
    """Wait for a record of an evaluation, which may start late on a busy machine; then stop the run."""
    run.until(lambda: any("evaluation" in record.rules for record in folder.read(run.folder / folder.FOLDER)))
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130


def events(run: LeagueOfRun) -> list[dict[str, Any]]:
    """Return the events that the league recorded."""
    return [event for _, event in read_file(run.folder / "league" / "league.jsonl")]


def recorded(run: LeagueOfRun) -> dict[str, Any]:
    """Check that all records replay to their results; return match -> outcomes of those recorded as every n-th."""
    matches = list(RecordedRun(run.folder).matches())
    assert any("evaluation" in record.rules for record in matches)
    checked = launched.command("workers.replay", str(run.folder), "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    found = re.search(r"(\d+) of (\d+) matches came to their recorded results", checked.stdout)
    assert found is not None and int(found[1]) == int(found[2]) == len(matches)
    again = re.search(r"([\d,]+) of ([\d,]+) decisions were made again", checked.stdout)
    assert again is not None and int(again[1].replace(",", "")) > 0
    return {record.match: record.outcomes for record in matches if "nth" in record.rules}


@pytest.mark.slow
def test_every_match_of_a_league_is_recorded_and_played_again_to_its_result(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, *RULES, **urls) as run:
        play(run, run.store(servers.redis_url), 40)
        end(run)
    counted = {event["match"]: event["outcomes"] for event in events(run) if event.get("as") == "counted"}
    assert recorded(run) == counted
    assert len(counted) >= 40


@pytest.mark.slow
def test_records_are_whole_and_only_those_of_a_killed_actor_may_be_missing(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, *RULES, **urls) as run:
        store = run.store(servers.redis_url)
        play(run, store, 15)
        killed = run.processes("actor")[0]
        killed.kill()
        run.until(lambda: "ended with status 137" in run.output)
        play(run, store, 15)
        end(run)
    ended = {event["match"]: event for event in events(run) if event.get("as") == "counted"}
    found = recorded(run)
    assert found.items() <= {match: event["outcomes"] for match, event in ended.items()}.items()
    # A repeated report is refused as a duplicate: its actor does not know that the first has counted.
    asked_again = {event["match"] for event in events(run) if event.get("reason") == "duplicate"}
    missing = {ended[match]["by"] for match in ended.keys() - found.keys() - asked_again}
    assert all(f"-{killed.pid}-" in actor for actor in missing), (
        f"not only records of {killed.pid} are missing: {missing}"
    )
    for path in folder.files(run.folder / folder.FOLDER):
        data = path.read_bytes()
        assert sum(folder.HEAD.size + len(one) for one in folder.entries(data)) == len(data), "a record is incomplete"
