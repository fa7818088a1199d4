"""Test of a streaming league, an actor and a learner killed: it plays, learns, pauses, resets; its books add up."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.league_run import LeagueOfRun, check_books

from workers.servers import Servers


@pytest.mark.slow
def test_a_streaming_league_learns_through_kills_and_loses_nothing_confirmed(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    settings = ("sampling=streaming", "algorithm=impala", "restarts=10000", "league.lease=5")
    with LeagueOfRun(tmp_path, *settings, **urls) as run:
        store = run.store(servers.redis_url)
        learning = ("main", "main_exploiter", "league_exploiter_0", "league_exploiter_1")

        def steps(name: str) -> int:
            return store.load().progress[name].steps

        def goes_on(*names: str) -> None:
            for name in names:
                before = steps(name)
                run.until(lambda name=name, before=before: steps(name) > before)

        run.until(lambda: "main@0" in store.view().roster)
        run.until(lambda: len(store.view().roster.snapshots_of("main")) >= 2)
        run.until(lambda: store.view().roster["main_exploiter"].generation >= 1)
        run.until(lambda: store.load().counters["counted"] > 20)  # snapshots and periods may come sooner
        check_books(store)

        # A paused player only gets segments that were already under way.
        log = run.folder / "logs" / "learner-league_exploiter_0.log"
        logged = len(log.read_text())
        store.pause("league_exploiter_0")
        run.until(lambda: any(word in log.read_text()[logged:] for word in ("league_exploiter_0: paused", "waiting: ")))
        paused_at = steps("league_exploiter_0")
        goes_on("main", "main", "main", "league_exploiter_1")
        assert steps("league_exploiter_0") < paused_at + 64 * 4 * 20
        store.resume("league_exploiter_0")
        goes_on("league_exploiter_0")

        run.processes("actor")[0].kill()
        next(process for process in run.processes("learner") if "player='main'" in process.cmdline()).kill()
        run.until(lambda: "learner-main ended with status" in run.output)
        goes_on(*learning)
        check_books(store)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    segments = run.account()
    assert segments["learned"] > 20 and segments["refused"] == 0
    assert "Traceback" not in run.output
