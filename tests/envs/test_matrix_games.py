from itertools import pairwise

import numpy as np
import pyspiel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import envs
from envs import exploitability
from envs.games.matrix_games import FAMILIES, payoffs
from warren.errors import ConfigurationError, UnknownName

SYMMETRIC = ["rps", "biased_rps", "cyclic", "disc", "elo", "skill", "spinning_top"]


def equilibrium(matrix):
    """Return a Nash strategy of a symmetric zero-sum game, by linear programming: p with p M >= 0."""
    n = len(matrix)
    found = linprog(np.zeros(n), A_ub=-matrix.T, b_ub=np.zeros(n), A_eq=np.ones((1, n)), b_eq=[1])
    assert found.success
    return found.x


def exploitability_of(name, strategy, **parameters):
    form = exploitability.load(f"matrix:{name}", **parameters)
    return exploitability.of(form, np.stack([strategy, strategy]))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_payoffs_are_antisymmetric_to_the_last_bit_and_at_most_one(name):
    matrix = payoffs(name)
    assert matrix.dtype == np.float64
    assert np.array_equal(matrix, -matrix.T)
    assert np.abs(matrix).max() <= 1


@pytest.mark.parametrize("name", SYMMETRIC)
def test_exploitability_is_zero_at_the_equilibrium_and_the_best_gain_elsewhere(name):
    matrix = payoffs(name)
    assert exploitability_of(name, equilibrium(matrix)) == pytest.approx(0, abs=1e-8)
    strategy = np.random.default_rng(0).dirichlet(np.ones(len(matrix)))
    assert exploitability_of(name, strategy) == pytest.approx((matrix @ strategy).max(), abs=1e-12)


def test_the_equilibria_are_the_known_ones():
    assert exploitability_of("rps", np.full(3, 1 / 3)) == pytest.approx(0, abs=1e-12)
    assert exploitability_of("biased_rps", np.array([1, 10, 5]) / 16) == pytest.approx(0, abs=1e-12)
    assert exploitability_of("cyclic", np.full(7, 1 / 7), size=7) == pytest.approx(0, abs=1e-12)
    assert exploitability_of("rps", np.array([1.0, 0, 0])) == 1


def test_rock_paper_scissors_equals_openspiels():
    for ours, theirs, scale in (("rps", "matrix_rps", 1), ("biased_rps", "matrix_brps", 50)):
        game = pyspiel.load_matrix_game(theirs)
        assert np.array_equal(payoffs(ours), np.array(game.row_utilities()) / scale)


def test_the_spinning_top_narrows_to_an_equilibrium_of_three_strategies():
    matrix = payoffs("spinning_top", layers=8, width=9)
    rings, first = [], 0  # a ring: strategies whose uniform mixture pays 0 against each of them
    while first < len(matrix):
        size = min(
            n for n in (3, 5, 7, 9) if np.abs(matrix[first : first + n, first : first + n].sum(axis=0)).max() < 1e-9
        )
        rings.append(slice(first, first + size))
        first += size
    sizes = [ring.stop - ring.start for ring in rings]
    assert len(rings) == 8 and sizes[0] == 3 and max(sizes) == 9
    widest = sizes.index(9)
    assert sizes[widest:] == sorted(sizes[widest:], reverse=True) and sizes[-1] == 3
    strength = [matrix[ring, ring].max() for ring in rings]  # the cycle within each ring
    assert strength[widest:] == sorted(strength[widest:], reverse=True) and strength[-1] < 0.7 * strength[widest]
    for low, high in pairwise(rings):
        assert (
            matrix[high, low].mean(axis=0) > 0
        ).all()  # a higher ring, played uniformly, beats each strategy of a lower one
    top = equilibrium(matrix)
    assert np.allclose(top[-3:], 1 / 3) and np.allclose(top[:-3], 0)
    alone = np.eye(len(matrix))[-1]
    assert exploitability_of("spinning_top", alone) >= 0.5 * 0.8**2 * np.sin(np.pi / 3) - 1e-12


def test_best_responses_to_the_last_opponent_cycle_at_the_top():
    matrix = payoffs("spinning_top")
    play, seen = 0, []
    for _ in range(60):
        play = int(matrix[:, play].argmax())
        seen.append(play)
    assert set(seen[-30:]) == {len(matrix) - 3, len(matrix) - 2, len(matrix) - 1}


@pytest.mark.parametrize(("name", "games"), [("rps", 2_000), ("elo", 20_000), ("spinning_top", 20_000)])
def test_rewards_are_wins_losses_and_draws_whose_mean_is_the_payoff(name, games):
    matrix = payoffs(name)
    env = envs.make_two_player(f"matrix:{name}", games, seed=0)
    generator = np.random.default_rng(1)
    env.reset()
    for row, column in generator.integers(0, len(matrix), (5, 2)):
        turn = env.step(np.full(games, row))
        assert not turn.done.any() and (turn.to_move == 1).all()
        turn = env.step(np.full(games, column))
        assert turn.done.all() and (turn.to_move == 0).all()
        assert np.isin(turn.reward, [-1, 0, 1]).all()
        payoff = matrix[row, column]
        assert set(np.unique(turn.reward[:, 0])) <= {0, np.sign(payoff)}
        spread = np.sqrt(abs(payoff) * (1 - abs(payoff)) / games)
        assert abs(turn.reward[:, 0].mean() - payoff) <= 4 * spread


def test_the_second_player_does_not_see_the_first_ones_choice():
    env = envs.make_two_player("matrix:rps", 3, seed=0)
    env.reset()
    assert (env.step(np.array([0, 1, 2])).observation == 1).all()


def test_seats_have_equal_observations_only_in_symmetric_games():
    assert envs.make_two_player("matrix:rps", 1, 0).single_observation_space.shape == (1,)
    pennies = envs.make_two_player("matrix:payoffs", 1, 0, matrix=[[1, -1], [-1, 1]])
    assert pennies.reset().observation.tolist() == [[1, 0]]
    assert pennies.step(np.zeros(1, int)).observation.tolist() == [[0, 1]]


def test_a_game_with_unequal_numbers_of_strategies_masks_missing_ones():
    env = envs.make_two_player("matrix:payoffs", 1, 0, matrix=[[1, -0.5, 0.25], [-1, 0.5, 0]])
    assert env.reset().action_mask.tolist() == [[True, True, False]]
    assert env.step(np.zeros(1, int)).action_mask.tolist() == [[True, True, True]]
    form = exploitability.load("matrix:payoffs", matrix=[[1, -0.5, 0.25], [-1, 0.5, 0]])
    uniform = exploitability.uniform(form)
    # The row player's best reply is row 0 (0.75 / 3), the column player's column 0 or 1 (0).
    assert exploitability.nash_conv(form, uniform) == pytest.approx(0.25)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.floats(0, 3), st.integers(0, 1000))
def test_every_random_game_of_skill_is_a_symmetric_game_within_one(size, transitivity, seed):
    matrix = payoffs("skill", size=size, transitivity=transitivity, seed=seed)
    assert np.array_equal(matrix, -matrix.T) and np.abs(matrix).max() == pytest.approx(1)


def test_strong_transitivity_gives_one_equilibrium_strategy_and_none_gives_cycles():
    assert (equilibrium(payoffs("elo", noise=0.0)) > 1e-9).sum() == 1
    assert (equilibrium(payoffs("skill", transitivity=0.0)) > 1e-9).sum() >= 3


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("matrix:cyclic?size=2", "size=2 of matrix game 'cyclic' must be at least 3"),
        ("matrix:rps?size=3", "unexpected keyword argument 'size'"),
        ("matrix:spinning_top?cycles=1.0", "cycles=1.0 between 0 and 1"),
        ("matrix:spinning_top?layers=one", "environment 'matrix:spinning_top' with parameters"),
    ],
)
def test_wrong_parameters_are_named(env_id, message):
    with pytest.raises(ConfigurationError, match=message):
        envs.make_two_player(env_id, 1, 0)


def test_payoffs_beyond_one_are_refused_and_unknown_games_list_near_names():
    with pytest.raises(ConfigurationError, match=r"payoffs \[2, 2\] must be a matrix of numbers within \[-1, 1\]"):
        envs.make_two_player("matrix:payoffs", 1, 0, matrix=[[0, 2], [-2, 0]])
    with pytest.raises(UnknownName, match="did you mean spinning_top"):
        envs.make_two_player("matrix:spining_top", 1, 0)
    assert set(FAMILIES) == {*SYMMETRIC, "payoffs"}
