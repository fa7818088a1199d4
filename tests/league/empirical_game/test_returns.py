import numpy as np
import pytest

from league.empirical_game.returns import Returns


def test_means_and_errors_do_not_depend_on_the_batches():
    games = np.random.default_rng(0).normal(0.3, 2.0, 1000)
    whole, parts = Returns(), Returns()
    whole.record(0, 1, games)
    for part in np.array_split(games, 7)[::-1]:
        parts.record(0, 1, part)
    for returns in (whole, parts):
        slots = np.arange(2)
        assert returns.games(slots)[0, 1] == returns.total_games == 1000
        assert returns.matrix(slots)[0, 1] == pytest.approx(games.mean())
        assert returns.errors(slots)[0, 1] == pytest.approx(games.std(ddof=1) / np.sqrt(1000))


def test_each_seating_of_a_pair_has_its_own_cell():
    returns = Returns()
    returns.record(2, 5, [1.0, 1.0])
    returns.record(5, 2, [-3.0])
    assert returns.matrix(np.array([2, 5])).tolist() == [[0.0, 1.0], [-3.0, 0.0]]
    assert returns.games(np.array([5, 2])).tolist() == [[0.0, 1.0], [2.0, 0.0]]


def test_errors_are_infinite_below_two_games_and_zero_for_equal_returns():
    returns = Returns()
    returns.record(0, 1, [1.0])
    returns.record(1, 0, [1.0, 1.0])
    assert returns.errors(np.arange(2)).tolist() == [[np.inf, np.inf], [0.0, np.inf]]
    assert returns.matrix(np.array([7])).tolist() == [[0.0]]
    assert returns.games(np.array([], dtype=np.intp)).shape == (0, 0)


def test_a_player_that_wins_most_games_can_have_a_negative_mean_return():
    # Nine small pots won and a large one lost: nine wins in ten games, and a loss in all.
    returns = Returns()
    returns.record(0, 1, [1.0] * 9 + [-13.0])
    assert returns.matrix(np.arange(2))[0, 1] < 0
