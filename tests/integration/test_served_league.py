"""Test of a league whose games env runners step, while actors decide for both sides of each match."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.league_run import LeagueOfRun, check_books
from support.match_weights import environment, lines_of

from workers.servers import Servers


@pytest.mark.slow
def test_a_served_league_learns_through_kills_and_its_books_add_up(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    record = tmp_path / "record"
    record.mkdir()
    settings = (
        "sampling=served", "env_runners=2", "actors=1", "league.lease=5", "restarts=100", "evaluators=1",
        "~league.players.league_exploiter_0", "~league.players.league_exploiter_1",
    )  # fmt: skip
    with LeagueOfRun(tmp_path, *settings, **urls, environment=environment(record)) as run:
        store = run.store(servers.redis_url)

        def goes_on() -> None:
            for name in ("main", "main_exploiter"):
                before = store.load().progress[name].steps
                run.until(lambda name=name, before=before: store.load().progress[name].steps > before)

        run.until(lambda: "main@0" in {match.away for match in store.load().matches.values()})
        run.processes("env")[0].kill()
        run.processes("actor")[0].kill()
        run.until(lambda: run.output.count("ended with status 137") == 2)
        goes_on()
        run.until(lambda: store.load().counters["counted"] > 5)  # players learn before their matches are over
        check_books(store)
        run.until(lambda: any("reported" in line and "@" in line["away"] for line in lines_of(record)))
        run.process.send_signal(2)
        assert run.wait() == 130
    account = run.account()
    assert account["learned"] > 4 and account["refused"] == 0
    assert "Traceback" not in run.output and run.tracebacks() == {}
    ended = [line for line in lines_of(record) if "reported" in line]
    assert ended and not any(line["changed"] for line in ended), "an opponent's weights changed within a match"
    assert any("@" in line["away"] for line in ended), "no opponent was frozen"
