"""benchmarks.learning.fightingice: rounds are counted for the newer player, on whichever side it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.fightingice_server import Server

from benchmarks.learning.fightingice import Rounds, meet
from envs.fightingice.commands import ACTIONS
from envs.fightingice.match import Match
from envs.fightingice.observation import FIELDS

FORWARD, PUNCH, STAND = (ACTIONS.index(name) for name in ("FORWARD_WALK", "STAND_A", "STAND"))


class Still:
    """Stands still."""

    generator = torch.Generator()

    def step(self, observation: np.ndarray, value: bool) -> Any:
        return SimpleNamespace(action=np.full(len(observation), STAND))


class Puncher(Still):
    """Walks up to the other player and punches."""

    def step(self, observation: np.ndarray, value: bool) -> Any:
        apart = observation[:, FIELDS.index("other.x")] - observation[:, FIELDS.index("me.x")]
        return SimpleNamespace(action=np.where(apart > 0.15, FORWARD, PUNCH))


def test_damage_counts_for_the_newer_player_from_both_sides() -> None:
    server = Server(frames=120)
    match = Match("zen", None, address=server.address, frames=120)
    policies: Any = (Puncher(), Still())
    won = meet(*policies, [match], 2)
    assert won.done.shape == (2,) and (won.done > 0).all() and not won.taken.any()
    lost = meet(*policies[::-1], [match], 2)
    assert np.array_equal(lost.taken, won.done) and not lost.done.any()
    match.close()
    server.close()


def test_a_draw_is_not_won_and_intervals_are_exact() -> None:
    found = Rounds(np.array([0.4, 0.2, 0.1, 0.1]), np.array([0.1, 0.1, 0.1, 0.1])).figures()
    assert (found["won"], found["health_won"], found["health_lost"], found["ratio"]) == (0.5, 0.2, 0.1, 2.0)
    every = Rounds(np.ones(60), np.zeros(60)).figures()
    assert every["interval"] == [pytest.approx(0.025 ** (1 / 60), abs=1e-3), 1.0]  # all won: Clopper & Pearson 1934
