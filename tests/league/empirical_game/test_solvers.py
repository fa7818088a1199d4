"""league.empirical_game.solvers: every solver on games whose solution is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from league.empirical_game.solvers import (
    META_SOLVERS,
    alpha_rank,
    antisymmetric,
    exploitability,
    nash,
    replicator,
    solve_zero_sum,
)
from warren.errors import LeagueError

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def skewed(a: float, b: float, c: float) -> np.ndarray:
    """Rock beats scissors by a, paper beats rock by b, scissors beat paper by c: Nash is (c, a, b) / (a + b + c)."""
    return np.array([[0.0, -b, a], [b, 0.0, -c], [-a, c, 0.0]])


@pytest.mark.parametrize("solver", ["nash", "replicator", "alpha_rank", "uniform"])
def test_rock_paper_scissors_is_played_uniformly(solver: str) -> None:
    assert META_SOLVERS[solver](RPS) == pytest.approx([1 / 3] * 3, abs=1e-6)


@pytest.mark.parametrize("solve", [nash, replicator])
@pytest.mark.parametrize("stakes", [(1.0, 2.0, 3.0), (5.0, 1.0, 1.0), (0.2, 0.3, 0.9)])
def test_skewed_rock_paper_scissors_has_its_known_equilibrium(solve: object, stakes: tuple[float, ...]) -> None:
    a, b, c = stakes
    expected = np.array([c, a, b]) / sum(stakes)
    # A step in proportion to the stakes keeps the dynamics' own error down.
    game = skewed(*stakes) / max(stakes)
    assert solve(game) == pytest.approx(expected, abs=0.02 if solve is replicator else 1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("solver", ["nash", "replicator", "alpha_rank"])
def test_one_who_beats_everyone_is_played_alone(solver: str) -> None:
    ladder = np.sign(np.subtract.outer(np.arange(5), np.arange(5))).astype(float)
    assert META_SOLVERS[solver](ladder)[4] > 0.99


def test_a_copy_of_a_player_does_not_change_what_the_mixture_is_worth() -> None:
    twice = RPS[np.ix_([0, 0, 1, 2], [0, 0, 1, 2])]
    mixture = nash(twice)
    assert mixture[0] + mixture[1] == pytest.approx(1 / 3) and exploitability(twice, mixture) < 1e-9


def test_a_game_that_is_not_symmetric_has_its_known_mixture_and_value() -> None:
    # von Neumann and Morgenstern 1944, section 18.4: Sherlock Holmes (columns) and Moriarty (rows)
    mixture, value = solve_zero_sum([[100.0, 0.0], [-50.0, 100.0]])
    assert mixture == pytest.approx([3 / 5, 2 / 5]) and value == pytest.approx(40.0)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(0.0, 1.0))))
def test_nothing_beats_the_nash_mixture_of_any_league(rates: np.ndarray) -> None:
    payoff = antisymmetric(rates)
    mixture = nash(payoff)
    assert mixture.min() >= 0.0 and mixture.sum() == pytest.approx(1.0)
    assert exploitability(payoff, mixture) < 1e-6


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8).flatmap(lambda n: arrays(float, (n, n), elements=st.floats(0.0, 1.0))))
def test_alpha_rank_is_a_distribution_for_any_league(rates: np.ndarray) -> None:
    ranked = alpha_rank(antisymmetric(rates))
    assert ranked.min() >= 0.0 and ranked.sum() == pytest.approx(1.0) and np.isfinite(ranked).all()


def test_alpha_rank_follows_the_cycle_and_leaves_out_who_loses_to_all_of_it() -> None:
    game = np.zeros((4, 4))
    game[:3, :3] = RPS
    game[:3, 3], game[3, :3] = 1.0, -1.0
    assert alpha_rank(game) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-6)


def test_weak_selection_leaves_alpha_rank_uniform() -> None:
    assert alpha_rank(RPS * 0.3, alpha=1e-9) == pytest.approx([1 / 3] * 3)
    ladder = np.sign(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    assert alpha_rank(ladder, alpha=1e-6) == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_a_payoff_with_holes_is_refused() -> None:
    with pytest.raises(LeagueError, match="finite payoffs"):
        solve_zero_sum([[0.0, float("nan")], [0.0, 0.0]])
