"""Test of a league of games that drive themselves through gateways, from the launcher to its books."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.league_run import check_books
from support.nim_run import NimRun, against_first

from league.state.replay import fold, read_file
from workers.servers import Servers
from workers.servers.ports import free_port


@pytest.mark.slow
def test_a_league_of_games_that_drive_themselves_beats_its_first_snapshot(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with NimRun(tmp_path, free_port(), "actors=2", **urls) as run:
        store = run.store(servers.redis_url)

        def learned() -> bool:
            rate, games = against_first(store)
            return rate > 0.8 and games > 40

        run.until(learned, 600.0)
        run.until(lambda: store.load().counters["counted"] > 10)
        check_books(store)

        # A paused player returns its matches, and the others play on.
        store.pause("main_exploiter")
        run.until(lambda: all(match.home != "main_exploiter" for match in store.load().matches.values()))
        steps = store.load().progress["main"].steps
        run.until(lambda: store.load().progress["main"].steps > steps)
        store.resume("main_exploiter")
        run.until(lambda: any(match.home == "main_exploiter" for match in store.load().matches.values()))
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    saved = fold(read_file(run.folder / "league" / "league.jsonl"))
    assert not saved.matches and not saved.counters["expired"], "stopping gateways kept matches"
    account = run.account()
    assert account["learned"] > 10 and account["refused"] == 0
    assert not run.tracebacks()
