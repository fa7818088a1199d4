"""Test of the comparison of a league on servers with the same league in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.league import distributed
from benchmarks.league.distributed import Ends
from benchmarks.league.sides import LEAGUE, settings
from workers.leagues.local import LocalLeague


def test_each_seed_is_trained_on_both_sides_and_a_difference_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, int, int]] = []

    def through_servers(game: str, seed: int, decisions: int, folder: Path) -> Ends:
        asked.append((game, seed, decisions))
        return {"nash_mixture": 0.5 + 0.01 * seed, "main_agent": 0.2 + 0.01 * seed, "main_decisions": 4000 + seed}

    def here(game: str, seed: int, decisions: int, folder: Path) -> Ends:
        asked.append((game, seed, decisions))
        return {"nash_mixture": 0.1 + 0.01 * seed, "main_agent": 0.2 + 0.01 * (4 - seed), "main_decisions": 3000 + seed}

    monkeypatch.setattr(distributed, "distributed", through_servers)
    monkeypatch.setattr(distributed, "local", here)
    figures = distributed.measure("kuhn", 3, 5000, tmp_path, say=lambda _: None)
    assert asked == [("kuhn", seed, 5000) for seed in (1, 1, 2, 2, 3, 3)]
    assert (figures["distributed_nash_mixture"], figures["local_nash_mixture"]) == pytest.approx((0.52, 0.12))
    assert figures["nash_mixture_p"] < 1e-3 < 0.9 < figures["main_agent_p"]
    assert figures["distributed_main_agent_by_seed"] == pytest.approx([0.21, 0.22, 0.23])
    assert (figures["distributed_main_decisions"], figures["local_main_decisions"]) == (4002, 3002)


@pytest.mark.usefixtures("one_thread")
def test_the_league_in_one_process_ends_by_at_most_one_update_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    league = settings("rps", 1, LEAGUE)
    update = league.lanes * league.unroll_length
    every = sum(player.updates for player in league.players.values())
    assert every >= 2, "a round would be more than one update"
    made: list[int] = []

    class Watched(LocalLeague):
        def round(self, most: int | None = None) -> None:
            super().round(most)
            made.append(sum(trainee.steps for trainee in self.trainees.values()))

    monkeypatch.setattr(distributed, "LocalLeague", Watched)
    ends = distributed.local("rps", 1, 3 * update, tmp_path)
    assert made[-1] == 3 * update and 0 < ends["main_decisions"] <= made[-1]
