"""Test of random kills of a league's processes and a restart of Redis: the league's books stay right.

Kills last for WARREN_KILL_SECONDS seconds, 10 by default:
`WARREN_KILL_SECONDS=300 make test ARGS="tests/faults/test_league_kills.py"`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis
from support.league_run import LeagueOfRun, check_books
from support.own_redis import until_it_answers

from league.redis.store import Store
from workers.servers import Servers
from workers.servers.ports import free_port

SECONDS = float(os.environ.get("WARREN_KILL_SECONDS", "10"))
ROLES = ("actor", "learner", "league", "evaluator")


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_the_books_stay_right_through_kills_and_a_restart_of_redis(tmp_path: Path, servers: Servers) -> None:
    port, binary = free_port(), shutil.which("redis-server")
    assert binary is not None
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
    url = f"redis://127.0.0.1:{port}/0"
    server = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    until_it_answers(port)
    rng = random.Random(7)
    try:
        settings = ("restarts=10000", "league_workers=2", "round_timeout=10", "league.lease=5")
        with LeagueOfRun(tmp_path, *settings, broker_url=servers.broker_url, redis_url=url) as run:
            store = run.store(url)
            run.until(lambda: "main@0" in store.view().roster)
            end, killed, restarted = time.monotonic() + SECONDS, [], False
            while time.monotonic() < end:
                killed.append(run.kill_one(rng, *ROLES))
                if not restarted and time.monotonic() > end - SECONDS / 2:
                    server.kill()
                    server.wait()
                    server = subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
                    restarted = True
                pause = time.monotonic() + rng.uniform(0.5, 3.0)
                run.until(lambda until=pause: time.monotonic() >= until)
            store = run.store(url)
            run.until(lambda: answers(store))
            check_books(store)
            # All learning players go on learning.
            learning = [player.name for player in store.view().roster if not player.frozen]
            before = {name: store.load().progress[name].steps for name in learning}
            for name in learning:
                run.until(lambda name=name: store.load().progress[name].steps > before[name])
            counters = check_books(store)
            print(f"\n{len(killed)} killed in {SECONDS:.0f} s: {counters}")
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == 130
        assert counters["counted"] > 0
    finally:
        server.kill()
        server.wait()


def answers(store: Store) -> bool:
    """Return whether Redis answers."""
    try:
        return bool(store.redis.ping())
    except redis.RedisError:
        return False
