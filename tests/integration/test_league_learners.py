"""Tests of several learners per player of a league: they share its updates, periods and resets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.league_run import LeagueOfRun

from workers.servers import Servers

TWO_PLAYERS = ("learners=2", "~league.players.league_exploiter_0", "~league.players.league_exploiter_1")


def logs(run: LeagueOfRun, player: str) -> list[str]:
    return [(run.folder / "logs" / f"learner-{player}{rank}.log").read_text() for rank in ("", "-1")]


@pytest.mark.slow
def test_two_learners_of_each_player_end_a_gathered_league_with_equal_weights(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, *TWO_PLAYERS, "total_steps=10000", **urls) as run:
        assert run.wait() == 0, run.output
    assert json.loads((run.folder / "outcome.json").read_text())["state"] == "finished"
    for player in ("main", "main_exploiter"):
        found = logs(run, player)
        ends = [re.findall(r"rank \d of 2 ends with weights (\w+)", log)[-1] for log in found]
        assert ends[0] == ends[1]
        assert "period 2 at" in found[0] and "period" not in found[1], "a learner other than the first asked the league"
        assert (run.folder / "players" / player / "checkpoints").exists()
    assert "player main_exploiter starts anew" in logs(run, "main_exploiter")[0]
    assert "error" not in "".join(path.read_text() for path in (run.folder / "logs").glob("learner*.log")).lower()
    assert run.account()["learned"] > 0


@pytest.mark.slow
def test_a_streaming_leagues_player_goes_on_when_the_learner_that_leads_is_killed(
    tmp_path: Path, servers: Servers
) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, *TWO_PLAYERS, "sampling=streaming", "restarts=100", **urls) as run:
        store = run.store(servers.redis_url)

        def goes_on() -> None:
            before = store.load().progress["main"].steps
            run.until(lambda: store.load().progress["main"].steps > before + 2000)

        run.until(lambda: len(store.view().roster.snapshots_of("main")) >= 1)
        of_main = [one for one in run.processes("learner") if "player='main'" in one.cmdline()]
        next(one for one in of_main if "learner_id=1" not in one.cmdline()).kill()
        run.until(lambda: len(re.findall(r"rank \d of 2, generation", logs(run, "main")[0])) >= 2)
        goes_on()
        run.process.send_signal(2)
        assert run.wait() == 130
    assert run.account()["learned"] > 0
