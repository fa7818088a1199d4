"""Tests of the benchmark that counts games until cells are known, in each seat and by pairs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.league import pairs
from benchmarks.league.pairs import IN_TURN, SEPARATE, TOGETHER, counted, known, snapshots, untrained
from benchmarks.league.sides import LEAGUE, settings
from league.empirical_game.returns import Returns

pytestmark = pytest.mark.usefixtures("one_thread")


def test_pairs_need_fewer_games_on_kuhn_than_seats_in_turn() -> None:
    config = settings("kuhn", 1, LEAGUE)
    found = counted(config, untrained(config, 2, 0), 0.05, 1)
    assert found[TOGETHER] < 0.8 * found[IN_TURN] < 0.6 * found[SEPARATE]
    assert found[TOGETHER] % (2 * pairs.SLOTS) == 0, "a pair is two games"


def test_a_cell_is_known_once_its_interval_is_narrow_enough() -> None:
    returns = Returns()
    assert not known(returns, 0, 1, 1.0, 0.05, 0.1)
    returns.record(0, 1, np.tile([1.0, -1.0], 100))
    assert known(returns, 0, 1, 1.0, 0.05, 0.9) and not known(returns, 0, 1, 1.0, 0.05, 0.1)
    lower, upper = (found[0, 1] for found in returns.interval(np.array([0, 1]), 1.0, 0.05))
    width = (upper - lower) / 2.0
    assert known(returns, 0, 1, 1.0, 0.05, width * 1.001) and not known(returns, 0, 1, 1.0, 0.05, width * 0.999)


def test_snapshots_are_taken_over_the_history_of_a_league() -> None:
    config = settings("kuhn", 1, LEAGUE)
    policies = snapshots(config, 3, 200_000)
    weights = [next(policy.parameters()).detach().numpy().tobytes() for policy in policies]
    assert len(set(weights)) == 3
    with pytest.raises(SystemExit, match="--decisions: 1 decisions give 1 snapshots for 3 players"):
        snapshots(config, 3, 1)


def test_shares_are_given_by_game_and_kind_of_players(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "counted", lambda *given: {SEPARATE: 400, IN_TURN: 200, TOGETHER: 100})
    monkeypatch.setattr(pairs, "snapshots", lambda *given: [])
    figures = pairs.measure(["kuhn"], 2, 3, 1000, 0.02, say=lambda line: None)
    assert figures["kuhn_untrained_of_each_seat"] == [0.25, 0.25]
    assert figures["kuhn_snapshots_of_seats_in_turn"] == [0.5, 0.5]
