"""league.empirical_game.restricted_game: an equilibrium of the whole league from a part of its cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from league.empirical_game.restricted_game import restricted_game
from league.empirical_game.solvers import solve_zero_sum


def play_out(truth: np.ndarray, together: int = 4, joining: int | None = None) -> tuple[np.ndarray, np.ndarray, int]:
    """Play wanted cells until none is left, `joining` players joining at a time; return (mixture, known, count)."""
    n = len(truth)
    known, mean = np.zeros((n, n), bool), np.zeros((n, n))
    for m in range(joining or n, n + 1, joining or n):
        while (found := restricted_game(mean[:m, :m], np.zeros((m, m)), known[:m, :m])).wanted:
            assert not any(known[cell] for cell in found.wanted)
            for cell in found.wanted[:together]:
                known[cell], mean[cell] = True, truth[cell]
        assert not len(found.undecided)
    return found.mixture, known, int(known.sum())


def gains(truth: np.ndarray, mixture: np.ndarray) -> float:
    """Return the sum of both seats' gains by best responses against a mixture."""
    return float((truth @ mixture[1]).max() - (mixture[0] @ truth).min())


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from(["any", "ladder", "cycle"]))
def test_no_player_of_the_league_gains_against_the_restricted_mixture(seed: int, n: int, shape: str) -> None:
    rng = np.random.default_rng(seed)
    strength = rng.permutation(n).astype(float)
    truth = {
        "any": rng.normal(size=(n, n)),
        "ladder": np.sign(np.subtract.outer(strength, strength)),
        "cycle": np.sin(2 * np.pi * np.subtract.outer(strength, strength) / n),
    }[shape]
    mixture, _, _ = play_out(truth)
    assert mixture.min() >= 0.0 and mixture.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert gains(truth, mixture) < 1e-6


@pytest.mark.parametrize(("joining", "share"), [(None, 0.2), (5, 0.5)])
def test_a_spinning_top_needs_only_a_part_of_the_cells(joining: int | None, share: float) -> None:
    # A spinning top (Czarnecki et al. 2020): of 40 players newer ones beat older ones, the newest five form a cycle.
    n, rng = 40, np.random.default_rng(0)
    truth = np.tanh(np.subtract.outer(np.arange(n), np.arange(n)) / 10) + 0.05 * rng.normal(size=(n, n))
    top = np.arange(n - 5, n)
    truth[np.ix_(top, top)] = np.sin(2 * np.pi * np.subtract.outer(top, top) / 5)
    mixture, _, played = play_out(truth, together=8, joining=joining)
    assert gains(truth, mixture) < 1e-6
    assert played < share * n * n, played


def test_a_cell_between_two_unplayed_players_is_not_wanted() -> None:
    truth = np.array([[0.0, 0.0, -5.0], [0.0, 0.0, -5.0], [5.0, 5.0, 0.0]])
    _, known, _ = play_out(truth)
    assert not known[0, 1] and not known[1, 0]


def test_a_player_that_may_gain_within_the_slack_is_a_member() -> None:
    truth = np.array([[0.0, 0.1], [-0.1, 0.0]])
    assert restricted_game(truth, np.zeros((2, 2)), np.ones((2, 2), bool)).members.tolist() == [0]
    assert restricted_game(truth, np.full((2, 2), 0.2), np.ones((2, 2), bool)).members.tolist() == [0, 1]


def test_newcomers_enter_the_mixture_though_they_join_faster_than_they_meet() -> None:
    n = 12
    truth = np.sign(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)  # newer players beat older ones,
    truth[:3, :3] = [[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]]  # but the first three form a cycle
    known = np.zeros((n, n), bool)
    known[:3, :3] = True
    for count in range(4, n + 1):  # one joins per two cells, but needs six to meet the three, and its own
        for _ in range(2):
            part = slice(0, count)
            found = restricted_game(truth[part, part], np.zeros((count, count)), known[part, part])
            known[found.wanted[0]] = True
    found = restricted_game(truth, np.zeros((n, n)), known)
    assert found.mixture[:, 3:].sum() == pytest.approx(2.0), "newcomers do not have the whole mixture"


def test_a_left_out_player_returns_when_the_support_changes() -> None:
    # Rock, then scissors (left out), then paper: then scissors are wanted again.
    truth = np.array([[0.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]])
    mixture, known, _ = play_out(truth)
    assert known.all() and mixture == pytest.approx(np.full((2, 3), 1 / 3))


def test_without_players_no_cell_is_wanted_and_without_games_the_newests() -> None:
    assert restricted_game(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0), bool)).wanted == []
    alone = restricted_game(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2), bool))
    assert alone.wanted == [(1, 1)] and alone.undecided.tolist() == [0, 1]


def test_with_all_cells_known_it_is_the_equilibrium_of_all_means() -> None:
    truth = np.random.default_rng(3).normal(size=(20, 20))
    found = restricted_game(truth, np.zeros((20, 20)), np.ones((20, 20), bool))
    value = solve_zero_sum(truth)[1]
    assert found.mixture[0] @ truth @ found.mixture[1] == pytest.approx(value)


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_a_mixture_of_some_withstands_all_and_the_others_need_not_meet(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    truth, played = rng.normal(size=(n, n)), rng.random(n) < 0.5
    played[rng.integers(n)] = True
    known, mean = np.zeros((n, n), bool), np.zeros((n, n))
    while (found := restricted_game(mean, np.zeros((n, n)), known, played)).wanted:
        cell = found.wanted[0]
        assert not known[cell] and (played[cell[0]] or played[cell[1]])
        known[cell], mean[cell] = True, truth[cell]
    assert found.mixture.sum(axis=1) == pytest.approx([1.0, 1.0]) and not found.mixture[:, ~played].any()
    worst = (found.mixture[0] @ truth).min(), -(truth @ found.mixture[1]).max()
    assert worst == pytest.approx([solve_zero_sum(truth[played])[1], solve_zero_sum(-truth[:, played].T)[1]], abs=1e-6)
