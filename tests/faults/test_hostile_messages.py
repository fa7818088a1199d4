"""Test of a league that gets messages no client of Warren sends: no process dies, and the league plays on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.hostile import Publisher, known, mixture
from support.league_run import LeagueOfRun, check_books

from tasks.events import EVALUATION, STATUS, WEIGHTS, of_player
from tasks.topology import Topology
from workers.servers import Servers

ROLES = ("actor", "learner", "league", "evaluator")
SERVICES = ("request", "report", "abort", "extend", "open_period", "progress", "close_period", "snapshot")
MESSAGES = 1000


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_league_plays_on_under_hostile_and_a_thousand_random_messages(tmp_path: Path, servers: Servers) -> None:
    urls = {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    with LeagueOfRun(tmp_path, "league_workers=2", "restarts=0", **urls) as run:
        store = run.store(servers.redis_url)
        run.until(lambda: "main@0" in store.view().roster)
        topology = Topology(run.name)
        alive = {process.pid for process in run.processes(*ROLES)}
        learning = [player.name for player in store.view().roster if not player.frozen]
        targets = [(topology.service.name, f"league.{name}", f"league.{name}") for name in SERVICES]
        for player in learning:
            targets += [(topology.learner.name, f"learner.{player}", "learner.learn")] * 2
            targets += [(topology.event(of_player(name, player)).name, "", name) for name in (WEIGHTS, STATUS)]
        targets += [(topology.actor.name, "actor.main", "actor.rollout")] * 2
        targets += [(topology.event(name).name, "", name) for name in (STATUS, EVALUATION)]
        targets += [(f"{topology.control}.pidbox", "", "ping")]
        before = {name: store.load().progress[name].steps for name in learning}
        with Publisher(servers.broker_url) as publisher:
            for exchange in {exchange for exchange, _, _ in targets}:  # each is declared by a process that is starting
                run.until(lambda exchange=exchange: publisher.knows(exchange))
            for exchange, key, task in dict.fromkeys(targets):
                publisher.send(exchange, key, known(task))
            for exchange, key, message in mixture(7, MESSAGES, targets):
                publisher.send(exchange, key, [message])
        sent = time.monotonic()
        # Longer than it takes to replace a lost connection, and to give up a round.
        run.until(lambda: time.monotonic() > sent + 5.0)
        for name in learning:
            run.until(lambda name=name: store.load().progress[name].steps > before[name])
        assert {process.pid for process in run.processes(*ROLES)} >= alive, run.output
        run.until(lambda: store.load().counters["counted"] > 0)  # players learn before a match is over
        check_books(store)
