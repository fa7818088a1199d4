"""Test of random kills of actors and learners: an opponent's weights never change within a match.

Runs until WARREN_KILL_MATCHES matches have a result, 120 by default:
`WARREN_KILL_MATCHES=10000 make test ARGS="tests/faults/test_match_weights.py -s"`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from support.league_run import LeagueOfRun, check_books
from support.match_weights import environment, lines_of

from workers.servers import Servers

MATCHES = int(os.environ.get("WARREN_KILL_MATCHES", "120"))
KILLS = 5  # the least number, however quickly the matches are played
PATIENCE = 300.0 + MATCHES  # s


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 120)
def test_an_opponents_weights_stay_the_same_for_a_whole_match(tmp_path: Path, servers: Servers) -> None:
    record, rng, killed = tmp_path / "record", random.Random(7), 0
    record.mkdir()
    with LeagueOfRun(
        tmp_path,
        *("restarts=10000", "league_workers=2", "round_timeout=10", "league.lease=5"),
        broker_url=servers.broker_url,
        redis_url=servers.redis_url,
        environment=environment(record),
    ) as run:
        store = run.store(servers.redis_url)
        run.until(lambda: "main@0" in store.view().roster)
        until = time.monotonic() + PATIENCE
        while killed < KILLS or sum("reported" in line for line in lines_of(record)) < MATCHES:
            assert time.monotonic() < until, run.output
            run.kill_one(rng, "actor", "learner")
            killed += 1
            pause = time.monotonic() + rng.uniform(2.0, 8.0)
            run.until(lambda pause=pause: time.monotonic() >= pause)
        check_books(store)
        events = [event for _, event in store.events()]
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130
    lines = lines_of(record)
    begun = {line["match"]: line for line in lines if "reported" not in line}
    ended = {line["match"]: line for line in lines if "reported" in line}
    wrong = [
        line
        for match, line in ended.items()
        if line["changed"] or not begun[match]["first"] == line["first"] == line["last"]
    ]
    assert wrong == []
    issued = {event["match"]: event for event in events if event["event"] == "issued"}
    counted = {event["match"] for event in events if event["event"] == "ended" and event["as"] == "counted"}
    against_others = {match for match in counted if issued[match]["home"] != issued[match]["away"]}
    assert against_others <= begun.keys(), "results were counted of matches without a recorded decision"
    opponents = {line["away"] for line in ended.values()}
    assert any("@" in name for name in opponents), "no opponent was frozen"
    assert any("@" not in name for name in opponents), "no opponent was learning"
    weights = {line["first"] for line in ended.values()}
    print(
        f"\n{len(ended):,} matches with a result, {len(begun) - len(ended):,} cut off by {killed} kills, "
        f"{len(opponents)} opponents with {len(weights)} sets of weights: none changed within a match"
    )
