import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from league.empirical_game.quantal_response import quantal_response
from league.empirical_game.solvers import solve_zero_sum
from warren.errors import LeagueError


def softmax(x):
    values = np.exp(x - x.max())
    return values / values.sum()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12), st.sampled_from([10.0, 1.0, 0.1, 0.01, 0.003])
)
def test_each_side_answers_the_other_by_the_quantal_rule(seed, rows, columns, temperature):
    payoff = np.random.default_rng(seed).normal(size=(rows, columns))
    x, y = quantal_response(payoff, temperature)
    assert x.shape == (rows,) and y.shape == (columns,)
    np.testing.assert_allclose(x, softmax(payoff @ y / temperature), atol=1e-5)
    np.testing.assert_allclose(y, softmax(-(x @ payoff) / temperature), atol=1e-5)


def test_uneven_matching_pennies_satisfy_the_equations_derived_by_hand():
    # x = (p, 1 - p) and y = (q, 1 - q) with payoff [[2, -1], [-1, 1]]: p = s((5 q - 2) / t), q = s(-(5 p - 2) / t)
    x, y = quantal_response([[2, -1], [-1, 1]], 0.5)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    assert x[0] == pytest.approx(sigmoid((5 * y[0] - 2) / 0.5), abs=1e-6)
    assert y[0] == pytest.approx(sigmoid(-(5 * x[0] - 2) / 0.5), abs=1e-6)


def test_a_high_temperature_is_uniform_and_a_low_one_is_nash():
    payoff = np.array([[0, -25, 50], [25, 0, -5], [-50, 5, 0]]) / 50  # its equilibrium is (1, 10, 5) / 16
    np.testing.assert_allclose(quantal_response(payoff, 1e4)[0], 1 / 3, atol=1e-3)
    np.testing.assert_allclose(quantal_response(payoff, 1e-5)[0], np.array([1, 10, 5]) / 16, atol=1e-3)


def test_duplicates_share_one_weight_and_equal_payoffs_are_played_uniformly():
    x, _ = quantal_response([[1, -1], [-1, 1], [-1, 1]], 0.01)
    assert x[1] == pytest.approx(x[2]) and x[1] + x[2] == pytest.approx(0.5, abs=0.01)
    assert quantal_response(np.zeros((2, 4)), 0.1)[1].tolist() == [0.25] * 4


@pytest.mark.parametrize(("concentration", "error"), [(3, 0.03), (3, 0.1), (20, 0.03), (50, 0.1)])
def test_a_temperature_of_a_quarter_of_the_error_is_exploited_less_than_nash(concentration, error):
    # 40 mixtures of rock, paper and scissors, with the error of a finite number of games.
    rps = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    gains = []
    for seed in range(10):
        generator = np.random.default_rng(seed)
        players = generator.dirichlet([concentration] * 3, 40)
        estimated = players @ rps @ players.T + error * generator.normal(size=(40, 40))
        mixtures = quantal_response(estimated, error / 4)[0], solve_zero_sum(estimated)[0]
        gains.append([(rps @ (x @ players)).max() for x in mixtures])
    quantal, nash = np.mean(gains, axis=0)
    assert quantal < 0.9 * nash


@pytest.mark.parametrize(
    ("payoff", "temperature", "message"),
    [
        ([[1.0]], 0.0, "temperature 0.0 of a quantal response is not positive"),
        ([[np.nan]], 1.0, "finite payoffs"),
        (np.zeros((0, 0)), 1.0, r"shape \(0, 0\)"),
    ],
)
def test_a_wrong_payoff_or_temperature_is_refused(payoff, temperature, message):
    with pytest.raises(LeagueError, match=message):
        quantal_response(payoff, temperature)
