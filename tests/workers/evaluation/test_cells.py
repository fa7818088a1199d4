import numpy as np
import pytest
import torch

import envs
from agents import build_policy
from envs import exploitability
from league.empirical_game.returns import Returns
from workers.evaluation.cells import Evaluator, play

pytestmark = pytest.mark.usefixtures("one_thread")


def policies(games, count, spread=1.0):
    made = []
    for seed in range(count):
        policy = build_policy({"hidden_sizes": [8]}, games.single_observation_space, games.single_action_space, seed)
        generator = torch.Generator().manual_seed(seed)
        for parameter in policy.parameters():
            parameter.data.add_(spread * torch.randn(parameter.shape, generator=generator))
        made.append(policy)
    return made


def evaluator_of(players, games, **options):
    returns = Returns()
    return Evaluator(games, returns, players.__getitem__, seed=1, **options), returns


@pytest.mark.parametrize("env_id", ["openspiel:kuhn_poker", "openspiel:leduc_poker", "matrix:biased_rps"])
def test_mean_returns_are_those_that_the_exact_payoff_expects_in_each_seat(env_id):
    games = envs.make_two_player(env_id, 500, 3)
    first, second = policies(games, 2)
    form = exploitability.load(env_id)
    tables = [exploitability.tabulate(form, policy.probabilities) for policy in (first, second)]
    plans = [form.plans(table) for table in tables]
    for home, away, one, other in ((first, second, 0, 1), (second, first, 1, 0), (first, first, 0, 0)):
        returns = play(games, home, away, rounds=30, generator=torch.Generator().manual_seed(5))
        assert returns.shape == (15_000,)
        expected = form.payoff(plans[one][0], plans[other][1])
        assert abs(returns.mean() - expected) < 4 * returns.std() / np.sqrt(len(returns))


def test_older_pairs_are_met_first_and_whom_not_all_have_met_is_in_no_mixture():
    games = envs.make_two_player("matrix:rps", 16, 3)
    players = policies(games, 4, spread=3.0)
    evaluator, returns = evaluator_of(players, games, rounds=1, least=16, error=1.0)
    slots, newest = np.arange(4), []
    while True:
        cell = evaluator.next_cell(slots)
        if cell is None:
            break
        newest.append(max(cell))
        assert not evaluator.mixture(slots)[:, max(1, max(cell)) :].any()
        evaluator.step(slots)
    assert newest == sorted(newest) and len(newest) == 16
    assert (returns.games(slots) == 16).all()
    np.testing.assert_allclose(evaluator.mixture(slots).sum(axis=1), 1.0)


def test_cells_that_matter_get_more_games_until_their_error_is_small():
    games = envs.make_two_player("matrix:payoffs", 64, 3, matrix=[[0, 0.1, 1], [-0.1, 0, 1], [-1, -1, 0]])
    players = policies(games, 3, spread=0.0)
    for action, policy in enumerate(players):  # each plays one row for certain; the last is beaten by both others
        policy.network.policy_trunk.layers[-1].bias.data[:] = 50.0 * torch.eye(3)[action]
    evaluator, returns = evaluator_of(players, games, rounds=1, least=64, error=0.01, most=20_000)
    slots = np.arange(3)
    while evaluator.step(slots):
        pass
    counts, errors = returns.games(slots), returns.errors(slots)
    assert (errors[:2, :2] <= 0.01).all() and counts[0, 1] >= 500
    assert counts[2].max() == counts[:, 2].max() == 64  # nothing is left to chance there
    assert evaluator.mixture(slots)[:, 0].min() > 0.99


def test_the_hotter_the_mixture_the_nearer_to_uniform():
    games = envs.make_two_player("matrix:rps", 64, 3)
    players, spread = policies(games, 4, spread=3.0), []
    for temperature in (0.25, 1.0, 100.0):
        evaluator, _ = evaluator_of(players, games, rounds=1, least=64, most=64, temperature=temperature)
        while evaluator.step(np.arange(4)):
            pass
        spread.append(evaluator.mixture(np.arange(4)).std())
    assert spread[0] > spread[1] > spread[2] and spread[2] < 0.05


def test_no_cell_gets_more_games_than_the_bound():
    games = envs.make_two_player("matrix:rps", 64, 3)
    evaluator, returns = evaluator_of(policies(games, 2), games, rounds=1, least=64, most=500, error=1e-6)
    while evaluator.step(np.arange(2)):
        pass
    assert (returns.games(np.arange(2)) == 512).all()


def test_the_mixture_of_known_players_is_hardly_exploitable():
    games = envs.make_two_player("matrix:rps", 512, 3)
    players = policies(games, 12, spread=3.0)
    evaluator, _ = evaluator_of(players, games, rounds=4, least=4096, error=0.02)
    slots = np.arange(12)
    while evaluator.step(slots):
        pass
    form = exploitability.load("matrix:rps")
    tables = [exploitability.tabulate(form, policy.probabilities) for policy in players]
    alone = min(exploitability.of(form, table) for table in tables)
    found = exploitability.of(form, exploitability.mixture(form, tables, evaluator.mixture(slots)))
    assert found < 0.03 < alone
