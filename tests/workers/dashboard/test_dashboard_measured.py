"""Mean returns between frozen players in the dashboard: over both seats, with intervals, from folder and Redis."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from support.asgi import ask
from support.saved_league import ROCK_PAPER_SCISSORS, save_league

from league.empirical_game.mixture import EXACT, PAIRS, MixtureSettings
from league.empirical_game.returns import Returns
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.rules.settings import Settings
from workers.dashboard.catalogue import Catalogue, Run
from workers.dashboard.measured import Table, saved, terms
from workers.dashboard.watching import Watched
from workers.servers.record import Record


def played(games: int = 400, largest: float = 1.0) -> Returns:
    """Record 0 against 1 in both seats, 0 against 2 in one, and 1 against itself; player 0 wins three of four games."""
    returns = Returns()
    won = np.where(np.arange(games) % 4, largest, -largest)
    returns.record(0, 1, won)
    returns.record(1, 0, -won[: games // 2])
    returns.record(0, 2, won)
    returns.record(1, 1, won)
    return returns


def test_a_mean_over_both_seats_has_an_anytime_valid_interval() -> None:
    table = Table(played(), 1.0, 0.95)
    assert table.mean[0, 1] == pytest.approx(0.5) and table.mean[1, 0] == pytest.approx(-0.5)
    assert table.lower[0, 1] < 0.5 < table.upper[0, 1]
    assert table.lower[0, 1] == pytest.approx(-table.upper[1, 0])
    assert table.games[0, 1] == table.games[1, 0] == 600
    wider, narrower = Table(played(), 1.0, 0.999), Table(played(40_000), 1.0, 0.95)
    assert wider.upper[0, 1] > table.upper[0, 1] > narrower.upper[0, 1] > 0.5


def test_cells_of_one_seat_or_of_a_player_with_itself_are_not_known() -> None:
    table = Table(played(), 1.0, 0.95)
    assert table.between(0, 2) is None and table.between(1, 1) is None and table.between(0, 9) is None
    found = table.between(0, 1)
    assert found is not None and (found["games"], found["found_by"], found["confidence"]) == (600, "games", 0.95)


def test_pairs_of_games_count_once_and_exact_cells_have_no_width() -> None:
    pairs = Returns()
    pairs.settings = MixtureSettings(source=PAIRS)
    pairs.record(0, 1, [0.5, -1.0, 1.0, 1.0])
    table = Table(pairs, 1.0, 0.95)
    assert (table.found_by, table.games[0, 1], table.mean[0, 1]) == (PAIRS, 4, 0.375)
    exact = Returns()
    exact.settings = MixtureSettings(source=EXACT)
    exact.add_cells([(0, 1, 1.0, 0.25, 0.0625), (1, 0, 1.0, -0.75, 0.5625)])
    table = Table(exact, None, 0.95)
    assert table.found_by == EXACT and table.lower[0, 1] == table.mean[0, 1] == table.upper[0, 1] == 0.5


def test_returns_beyond_1_without_a_bound_have_no_interval() -> None:
    assert Table(played(), None, 0.95).between(0, 1)["lower"] is not None  # type: ignore[index]
    found = Table(played(largest=3.0), None, 0.95).between(0, 1)
    assert found is not None and (found["mean"], found["lower"], found["upper"]) == (1.5, None, None)
    assert np.isfinite(Table(played(largest=3.0), 3.0, 0.95).lower[0, 1])


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a", 0, 1, 1, 1]]', "3", "[[0, 1, 5]]"])
def test_a_file_without_returns_counts_as_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "returns.json").write_text(text)
    assert Table(saved(tmp_path), 1.0, 0.95).packed()["slots"] == 0


def test_the_bound_comes_from_the_settings_or_else_from_the_game() -> None:
    assert terms({"league": ROCK_PAPER_SCISSORS}) == (1.0, 0.95)
    assert terms({"league": {**ROCK_PAPER_SCISSORS, "max_return": 4.0, "cell_confidence": 0.9}}) == (4.0, 0.9)
    assert terms({"league": {**ROCK_PAPER_SCISSORS, "env": "openspiel:no_such_game"}}) == (None, 0.95)
    assert terms({}) == terms({"league": {"env": 3}}) == (None, 0.95)


def test_a_page_gets_the_returns_of_a_saved_league(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from workers.dashboard.server import Dashboard

    save_league(tmp_path / "rps", ROCK_PAPER_SCISSORS, 2)
    cells = [[0, 1, 100, 20.0, 60.0], [1, 0, 100, -10.0, 50.0]]
    (tmp_path / "rps/league/returns.json").write_text(json.dumps(cells))
    app = Dashboard(Catalogue(tmp_path)).app("let-me-in")

    def told(address: str) -> Any:
        return ask(app, address, headers={"authorization": "Bearer let-me-in"}).json()

    found = told("/api/returns?run=rps")
    mean = np.frombuffer(base64.b64decode(found["mean"]), "<f4").reshape(found["slots"], found["slots"])
    assert mean[0, 1] == pytest.approx(0.15) and mean[1, 0] == pytest.approx(-0.15) and np.isnan(mean[0, 0])
    names = {row["slot"]: row["player"] for row in told("/api/state?run=rps")["players"]}
    cell = told(f"/api/cell?run=rps&home={names[0]}&away={names[1]}")
    assert cell["returns"]["mean"] == pytest.approx(0.15) and cell["returns"]["games"] == 200
    assert told(f"/api/cell?run=rps&home={names[0]}&away={names[0]}")["returns"] is None
    (tmp_path / "rps/league/returns.json").write_text(json.dumps([[*cell[:3], 0.0, 60.0] for cell in cells]))
    os.utime(tmp_path / "rps/league/returns.json", ns=(1, 1))
    assert told(f"/api/cell?run=rps&home={names[0]}&away={names[1]}")["returns"]["mean"] == 0.0


def test_looking_at_a_league_loads_no_pytorch(tmp_path: Path) -> None:
    """PyTorch would take more memory than the rest of the dashboard."""
    pytest.importorskip("starlette")
    save_league(tmp_path / "rps", ROCK_PAPER_SCISSORS, 2)
    cells = [[0, 1, 100, 20.0, 60.0], [1, 0, 100, -10.0, 50.0]]
    (tmp_path / "rps/league/returns.json").write_text(json.dumps(cells))
    program = f"""
import sys
from pathlib import Path
import workers.dashboard.server
from workers.dashboard.catalogue import Run
from workers.dashboard.watching import Watched
watched = Watched(Run("rps", Path({str(tmp_path / "rps")!r})))
watched.refresh()
assert watched.returns().between(0, 1)["lower"] is not None
print(sorted({{"torch", "matplotlib", "scipy"}} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told.stdout == "[]\n", told.stderr


def test_returns_of_a_running_league_come_from_redis(tmp_path: Path, redis_url: str, run_name: str) -> None:
    client = redis.Redis.from_url(redis_url)
    store = Store(client, f"warren.{run_name}:league:", seed=1)
    save_league(tmp_path, ROCK_PAPER_SCISSORS, 0)
    (tmp_path / "servers").mkdir()
    Record("amqp://", redis_url, "private", "private", os.getpid(), run=run_name).write(tmp_path)
    watched = Watched(Run("rps", tmp_path))
    try:
        store.create(Settings())
        assert watched.returns().between(0, 1) is None
        evaluator = SharedReturns(client, store.prefix)
        evaluator.add_cells([(0, 1, 10, 5.0, 10.0), (1, 0, 10, 5.0, 10.0)])
        assert watched.returns().between(0, 1)["mean"] == 0.0  # type: ignore[index]
        evaluator.add_cells([(0, 1, 10, 10.0, 10.0)])
        assert watched.returns().between(0, 1)["mean"] == pytest.approx(0.125)  # type: ignore[index]
    finally:
        for key in client.scan_iter(f"warren.{run_name}:*"):
            client.delete(key)
