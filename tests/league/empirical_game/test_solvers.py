"""league.empirical_game.solvers: every solver on games with known solutions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from league.empirical_game import solvers
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
    """Return gains: rock a from scissors, paper b from rock, scissors c from paper; Nash is (c, a, b) / (a + b + c)."""
    return np.array([[0.0, -b, a], [b, 0.0, -c], [-a, c, 0.0]])


@pytest.mark.parametrize("solver", ["nash", "replicator", "alpha_rank", "uniform"])
def test_rock_paper_scissors_is_played_uniformly(solver: str) -> None:
    assert META_SOLVERS[solver](RPS) == pytest.approx([1 / 3] * 3, abs=1e-6)


@pytest.mark.parametrize("solve", [nash, replicator])
@pytest.mark.parametrize("stakes", [(1.0, 2.0, 3.0), (5.0, 1.0, 1.0), (0.2, 0.3, 0.9)])
def test_skewed_rock_paper_scissors_has_its_known_equilibrium(solve: object, stakes: tuple[float, ...]) -> None:
    a, b, c = stakes
    expected = np.array([c, a, b]) / sum(stakes)
    # Stakes of at most 1 keep the error of the replicator's steps small.
    game = skewed(*stakes) / max(stakes)
    assert solve(game) == pytest.approx(expected, abs=0.02 if solve is replicator else 1e-9)  # type: ignore[operator]


@pytest.mark.parametrize("solver", ["nash", "replicator", "alpha_rank"])
def test_a_player_that_beats_all_others_is_played_alone(solver: str) -> None:
    ladder = np.sign(np.subtract.outer(np.arange(5), np.arange(5))).astype(float)
    assert META_SOLVERS[solver](ladder)[4] > 0.99


def plain_replicator(payoff: np.ndarray, steps: int, step_size: float) -> np.ndarray:
    """Return the time average of replicator dynamics with every player in every step."""
    logits, total = np.zeros(len(payoff)), np.zeros(len(payoff))
    for _ in range(steps):
        mixture = np.exp(logits - logits.max())
        mixture /= mixture.sum()
        total += mixture
        logits += step_size * (payoff @ mixture)
    return total / steps


@pytest.mark.parametrize("scale", [0.05, 1.0, 13.0])
@pytest.mark.parametrize("players", [2, 7, 80])
def test_replicator_without_extinct_players_finds_the_same_mixture(players: int, scale: float) -> None:
    rng = np.random.default_rng(players)
    strength = np.linspace(0.0, 2.0, players)
    game = np.tanh(np.subtract.outer(strength, strength)) + antisymmetric(rng.normal(size=(players, players)) * 0.2)
    game *= scale
    found = replicator(game, 3000, 0.02)
    for steps in range(100, 3001, 100):  # it may stop early, after a multiple of 100 steps
        if exploitability(game, plain_replicator(game, steps, 0.02)) <= 0.001:
            break
    if scale <= 1.0:
        assert found == pytest.approx(plain_replicator(game, steps, 0.02), abs=1e-8)
    assert exploitability(game, found) <= max(0.001, exploitability(game, plain_replicator(game, 3000, 0.02)) + 1e-8)


def test_replicator_stops_when_nobody_gains_or_at_its_work_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replicator(RPS, steps=10**12) == pytest.approx([1 / 3] * 3)
    monkeypatch.setattr(solvers, "MOST_WORK", 9 * 500)
    game = skewed(0.2, 0.3, 0.9)
    assert replicator(game, step_size=0.001, steps=10**12) == pytest.approx(
        plain_replicator(game, 500, 0.001), abs=1e-9
    )


# `pi` of OpenSpiel 2.0.2, open_spiel.python.egt.alpharank.compute([payoff], m=population, alpha=alpha).
RECORDED = json.loads((Path(__file__).parent / "alpha_rank.json").read_text())


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{len(case['payoff'])} players, alpha {case['alpha']}")
def test_alpha_rank_equals_openspiels_recorded_figures(case: dict[str, Any]) -> None:
    found = alpha_rank(np.array(case["payoff"]), case["alpha"], case["population"])
    assert found == pytest.approx(case["ranked"], abs=1e-10)


def test_a_copy_of_a_player_shares_its_part_of_the_mixture() -> None:
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


def test_alpha_rank_is_uniform_over_a_cycle_and_zero_for_a_player_that_it_beats() -> None:
    game = np.zeros((4, 4))
    game[:3, :3] = RPS
    game[:3, 3], game[3, :3] = 1.0, -1.0
    assert alpha_rank(game) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-6)


def test_weak_selection_leaves_alpha_rank_uniform() -> None:
    assert alpha_rank(RPS * 0.3, alpha=1e-9) == pytest.approx([1 / 3] * 3)
    ladder = np.sign(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    assert alpha_rank(ladder, alpha=1e-6) == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_a_payoff_with_nan_is_refused() -> None:
    with pytest.raises(LeagueError, match="finite payoffs"):
        solve_zero_sum([[0.0, float("nan")], [0.0, 0.0]])
