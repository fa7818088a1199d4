"""Test of the comparison of a league on servers with the same league in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.league import distributed
from benchmarks.league.distributed import Ends


def test_each_seed_is_trained_on_both_sides_and_a_difference_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, int, int]] = []

    def through_servers(game: str, seed: int, decisions: int, folder: Path) -> Ends:
        asked.append((game, seed, decisions))
        return {"nash_mixture": 0.5 + 0.01 * seed, "main_agent": 0.2 + 0.01 * seed}

    def here(game: str, seed: int, decisions: int, folder: Path) -> Ends:
        asked.append((game, seed, decisions))
        return {"nash_mixture": 0.1 + 0.01 * seed, "main_agent": 0.2 + 0.01 * (4 - seed)}

    monkeypatch.setattr(distributed, "distributed", through_servers)
    monkeypatch.setattr(distributed, "local", here)
    figures = distributed.measure("kuhn", 3, 5000, tmp_path, say=lambda _: None)
    assert asked == [("kuhn", seed, 5000) for seed in (1, 1, 2, 2, 3, 3)]
    assert (figures["distributed_nash_mixture"], figures["local_nash_mixture"]) == pytest.approx((0.52, 0.12))
    assert figures["nash_mixture_p"] < 1e-3 < 0.9 < figures["main_agent_p"]
    assert figures["distributed_main_agent_by_seed"] == pytest.approx([0.21, 0.22, 0.23])
