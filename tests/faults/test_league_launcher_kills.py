"""Test of a league whose launcher is killed at random moments and resumed each time.

The default is two kills. The time until every learner learns again is printed:
`WARREN_LAUNCHER_KILLS=10 make test ARGS="tests/faults/test_league_launcher_kills.py -s"`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import redis
from support.league_run import LeagueOfRun, check_books

from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.league_state import LeagueState
from league.state.replay import fold, read_folder
from warren.errors import WarrenError
from workers.servers import record

KILLS = int(os.environ.get("WARREN_LAUNCHER_KILLS", "2"))
PLAYERS = ("main", "main_exploiter", "league_exploiter_0")
# Kuhn poker with snapshots and resets every few seconds, far more often than the folder is saved.
KUHN = (
    *("league=kuhn", "actors=1", "league_workers=2", "total_steps=1000000000", "league.snapshot_every=30"),
    *("league.games=64", "league.tables=2", "league.lanes=64", "league.match_games=32", "league.period_steps=2000"),
    *("league.algorithm.minibatch_size=256", "~league.players.league_exploiter_1"),
    *("league.evaluation=games", "league.mixture_against=players", "league.cell_least=256"),
    *("league.evaluation_games=128", "league.reference_games=128"),
    *(
        f"league.players.{player}.config={{checkpoint_min_steps: 2000, checkpoint_max_steps: 4000}}"
        for player in PLAYERS
    ),
)


class Look(NamedTuple):
    """A copy of the league in Redis at one moment."""

    state: LeagueState
    games: dict[tuple[int, int], float]  # between frozen players

    @classmethod
    def at(cls, store: Store) -> Look:
        returns = SharedReturns(store.redis, store.prefix)
        returns.refresh()
        games = {(first, second): games for first, second, games, *_ in returns.cells()}
        return cls(store.load(), games)


class KuhnRun(LeagueOfRun):
    """Number 0 starts a Kuhn league in `folder`, any other resumes it; each `number` has a log of its own."""

    def __init__(self, folder: Path, number: int, urls: Mapping[str, str]) -> None:
        place = folder / "project" / "launcher-0"
        settings = (f"resume={place}",) if number else KUHN if urls else (*KUHN, "broker=private")
        super(LeagueOfRun, self).__init__(folder, *settings, trial=f"launcher-{number}", **urls)
        self.folder = place

    def served(self) -> Store:
        """Return the league's store once the league is served."""
        self.until(lambda: "; Redis: " in self.output)  # now the record is this launcher's

        def there() -> Store | None:
            with suppress(WarrenError, redis.RedisError):
                store = self.store(record.read(self.folder).redis_url)
                return store if store.is_ready() else None
            return None

        return self.until(there)

    def points(self, player: str) -> list[dict[str, Any]]:
        """Return the metrics of a player's updates so far."""
        path = self.folder / "players" / player / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(240 + 150 * KILLS)
@pytest.mark.parametrize("private", [True, False])
def test_a_league_loses_nothing_when_its_launcher_is_killed(
    private: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With servers that outlive the launcher, all processes are killed too, so that none saves anything at its end."""
    servers = None if private else request.getfixturevalue("servers")
    urls = {} if servers is None else {"broker_url": servers.broker_url, "redis_url": servers.redis_url}
    rng, seconds = random.Random(12), list[float]()
    before: Look | None = None
    for kill in range(KILLS + 1):
        with KuhnRun(tmp_path, kill, urls) as run:
            store, served = run.served(), time.time()
            if before is not None:
                check_nothing_lost(before, Look.at(store), run.folder / "league")
            learn_again(run, served, seconds)
            check_books(store)
            if kill == KILLS:
                assert [line for line in run.output.splitlines() if "ended with status" in line] == []
                break
            pause = time.monotonic() + rng.uniform(0.0, 3.0)
            run.until(lambda until=pause: time.monotonic() > until)
            before = Look.at(store)
            killed = [] if private else psutil.Process(run.process.pid).children(recursive=True)
            run.process.send_signal(signal.SIGSTOP)  # or it would restart its children
            for process in killed:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            run.process.kill()
            run.process.wait()
    left = [run.folder / name for name in ("servers/redis/appendonlydir", "league/unsaved.json")]
    assert not any(path.exists() for path in left), "data is left of a run that is over and saved"
    print(
        f"\n{KILLS} kills: s from serving until every learner had learned again: {seconds[1:]}; at first {seconds[0]}"
    )


def check_nothing_lost(before: Look, after: Look, folder: Path) -> None:
    """Check that the folder's history contains the state seen before the kill, and that no counter has decreased."""
    history = list(read_folder(folder))
    seen = [entry for entry, _ in history].index(before.state.last_event)
    assert fold(history[: seen + 1]).differences(before.state) == []
    assert set(before.state.players) <= set(after.state.players)
    for counter in ("issued", "counted", "games"):
        assert after.state.counters[counter] >= before.state.counters[counter]
    assert all(after.games.get(cell, 0.0) >= games for cell, games in before.games.items())


def learn_again(run: KuhnRun, served: float, seconds: list[float]) -> None:
    """Wait until each player has an update later than `served`; append the seconds that took."""
    for player in PLAYERS:
        run.until(lambda player=player: any(point["time"] > served for point in run.points(player)))
    first = [next(point["time"] for point in run.points(player) if point["time"] > served) for player in PLAYERS]
    seconds.append(round(max(first) - served, 1))
