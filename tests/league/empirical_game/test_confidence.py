"""league.empirical_game.confidence: intervals that stay valid if they are checked after every batch."""

from __future__ import annotations

import numpy as np
import pytest

from league.empirical_game.confidence import confidence_sequence

ALPHA = 0.05
STREAMS, LOOKS, BATCH = 2000, 100, 100


def games_of(name: str, rng: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Return (returns [streams, games], their true mean, their bound)."""
    shape = (STREAMS, LOOKS * BATCH)
    if name == "pots":  # as in poker: many small, few large
        values, chances = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0.15, 0.4, 0.3, 0.15])
        return values[np.searchsorted(chances.cumsum(), rng.random(shape))], float(values @ chances), 2.0
    if name == "rare":  # one game in 500 is lost
        return np.where(rng.random(shape) < 0.002, -1.0, 1.0), 0.996, 1.0
    if name == "draws":  # 99 of 100 games are drawn
        return np.where(rng.random(shape) < 0.01, np.sign(rng.random(shape) - 0.5), 0.0), 0.0, 1.0
    return rng.choice([-1.0, 1.0], shape), 0.0, 1.0


def looks_at(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (games, sums, sums of squares) at each check, each [streams, checks]."""
    cut = returns.reshape(STREAMS, LOOKS, BATCH)
    games = np.broadcast_to(np.arange(1, LOOKS + 1) * BATCH, (STREAMS, LOOKS)).astype(float)
    return games, cut.sum(axis=2).cumsum(axis=1), np.square(cut).sum(axis=2).cumsum(axis=1)


@pytest.mark.parametrize("name", ["even", "pots", "rare", "draws"])
def test_intervals_checked_after_every_batch_miss_at_most_at_their_rate(name: str) -> None:
    returns, mean, bound = games_of(name, np.random.default_rng(7))
    lower, upper = confidence_sequence(*looks_at(returns), bound, ALPHA)
    missed = ((lower > mean) | (upper < mean)).any(axis=1).mean()
    assert missed <= ALPHA + 3 * np.sqrt(ALPHA * (1 - ALPHA) / STREAMS)
    assert (upper - lower)[:, -1].mean() < 0.15 * bound  # it is narrow enough to be of use


@pytest.mark.parametrize("name", ["even", "pots", "rare"])
def test_intervals_of_standard_errors_checked_as_often_miss_far_more(name: str) -> None:
    returns, mean, _ = games_of(name, np.random.default_rng(7))
    games, total, squares = looks_at(returns)
    error = np.sqrt(np.maximum(squares - total**2 / games, 0.0) / (games - 1.0) / games)
    missed = (np.abs(total / games - mean) > 1.96 * error).any(axis=1).mean()
    assert missed > 4 * ALPHA


def test_equal_games_do_not_shrink_the_interval_to_a_point() -> None:
    games = np.array([1.0, 64.0, 1000.0, 100_000.0])
    lower, upper = confidence_sequence(games, games, games, 1.0, ALPHA)
    assert (upper == 1.0).all() and (np.diff(lower) > 0).all()
    assert lower[1] < 0.9 and 0.95 < lower[2] < 0.997 and lower[3] > 0.999


def test_the_width_is_a_small_multiple_of_the_standard_error() -> None:
    for games in (10**3, 10**5, 10**7):
        lower, upper = confidence_sequence(games, 0.0, games * 1.7, 2.0, ALPHA)
        assert lower == pytest.approx(-upper)
        assert 1.96 < upper / np.sqrt(1.7 / games) < 5.0


def test_the_interval_is_the_whole_range_without_games_and_holds_the_mean() -> None:
    lower, upper = confidence_sequence(0.0, 0.0, 0.0, 13.0, ALPHA)
    assert (float(lower), float(upper)) == (-13.0, 13.0)
    values = np.random.default_rng(0).uniform(-2, 2, (200, 30))
    lower, upper = confidence_sequence(np.full(200, 30.0), values.sum(axis=1), np.square(values).sum(axis=1), 2.0, 0.5)
    assert ((lower <= values.mean(axis=1)) & (values.mean(axis=1) <= upper)).all()
    assert (lower >= -2.0).all() and (upper <= 2.0).all()
