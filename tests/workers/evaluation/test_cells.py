import numpy as np
import pytest
import torch

import envs
from agents import build_policy
from envs import exploitability
from league.empirical_game.confidence import confidence_sequence
from league.empirical_game.returns import Returns
from warren.errors import CheckpointError, ConfigurationError
from workers.config.league import LeagueConfig, PlayerConfig
from workers.evaluation.by_settings import evaluator_of as evaluator_by_settings
from workers.evaluation.cell_games import play, play_pairs
from workers.evaluation.cells import Evaluator

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
def test_mean_returns_match_the_exact_payoff_in_each_seat(env_id):
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


def exact_cells(env_id, players):
    """Return the expected return of each player in seat 0 against each in seat 1, (n, n)."""
    form = exploitability.load(env_id)
    plans = [form.plans(exploitability.tabulate(form, player.probabilities)) for player in players]
    return np.array([[form.payoff(mine[0], theirs[1]) for theirs in plans] for mine in plans])


def test_intervals_of_duplicate_deals_hold_the_exact_payoff_and_are_narrower():
    games = envs.make_two_player("openspiel:kuhn_poker", 1000, 3)
    first, second = policies(games, 2)
    exact = exact_cells("openspiel:kuhn_poker", (first, second))
    expected = (exact[0, 1] - exact[1, 0]) / 2.0
    generator = torch.Generator().manual_seed(5)
    pairs = play_pairs(games, first, second, 100, generator).reshape(400, 250).astype(np.float64)
    error = pairs.std(axis=1, ddof=1) / np.sqrt(250)
    missed = np.abs(pairs.mean(axis=1) - expected) > 1.96 * error
    assert 0.02 < missed.mean() < 0.085, "about 5 % miss, since pairs are independent"
    lower, upper = confidence_sequence(250, pairs.sum(axis=1), np.square(pairs).sum(axis=1), 2.0, 0.05)
    assert ((lower <= expected) & (expected <= upper)).mean() > 0.98
    alone = np.stack([play(games, first, second, 100, generator), -play(games, second, first, 100, generator)])
    assert pairs.std() < 0.9 * alone.mean(axis=0).std(), "two games of one deal vary less than two of different deals"


class WithoutSeeds:
    chance = None

    def __init__(self, games):
        self._games = games

    def reset(self, seeds):
        assert seeds is None
        return self._games.reset()

    def __getattr__(self, name):
        return getattr(self._games, name)


def test_without_seeds_of_games_pairs_only_swap_seats():
    games = WithoutSeeds(envs.make_two_player("matrix:biased_rps", 500, 3))
    first, second = policies(games, 2)
    found = play_pairs(games, first, second, 20, torch.Generator().manual_seed(5))
    exact = exact_cells("matrix:biased_rps", (first, second))
    expected = (exact[0, 1] - exact[1, 0]) / 2.0
    assert found.shape == (10_000,) and abs(found.mean() - expected) < 4 * found.std() / 100


def test_pairs_play_half_of_the_cells_and_give_both_seats_one_mixture():
    games = envs.make_two_player("openspiel:kuhn_poker", 512, 3)
    players = policies(games, 4, spread=2.0)
    evaluator, returns = evaluator_of(players, games, rounds=2, least=512, error=0.05, source="pairs", bound=2.0)
    slots, played = np.arange(4), set()
    while offered := evaluator._offered(slots):
        played.add(offered[0])
        evaluator.step(slots)
    assert played and all(first < second for first, second in played)
    matrix, mixture = returns.matrix(slots), evaluator.mixture(slots)
    np.testing.assert_array_equal(matrix, -matrix.T)
    np.testing.assert_allclose(mixture[0], mixture[1])
    assert returns.found_by() == "pairs" and np.isinf(returns.games(slots).diagonal()).all()
    exact = exact_cells("openspiel:kuhn_poker", players)
    payoff = (exact - exact.T) / 2.0
    lower, upper = returns.interval(slots, 2.0, 0.05)
    met = returns.games(slots) > 0
    assert ((lower <= payoff) & (payoff <= upper))[met].all()
    low, high = evaluator.gain_within(slots, mixture)
    members = np.flatnonzero(mixture[0])
    assert low <= (payoff[members] @ mixture[0]).max() <= high < 0.2


def test_a_cell_counts_after_as_many_games_by_pairs_as_by_games():
    games = envs.make_two_player("openspiel:kuhn_poker", 64, 3)
    players = policies(games, 2)
    counted = {}
    for source in ("games", "pairs"):
        evaluator, returns = evaluator_of(players, games, rounds=2, least=256, error=9.0, source=source, bound=2.0)
        while evaluator.step(np.arange(2)):
            pass
        counted[source] = returns.games(np.arange(2))[0, 1]
    assert counted == {"games": 256, "pairs": 128}, "a pair is two games"


def test_a_begun_cell_is_finished_before_one_of_a_newer_player_begins():
    games = envs.make_two_player("openspiel:kuhn_poker", 64, 3)
    players = policies(games, 12)
    evaluator, returns = evaluator_of(players, games, rounds=2, least=512, error=9.0, source="pairs", bound=2.0)
    for count in range(2, 13):  # another player after each quarter of a cell
        assert evaluator.step(np.arange(count))
        met = returns.games(np.arange(count))
        assert ((met > 0) & (met < 256)).sum() in (0, 2), "at most one pair of cells is unfinished"
    assert len(evaluator.returns.mixture(np.arange(12)).members) > 1, "players enter the mixture while others join"


def test_an_exact_evaluator_that_is_behind_knows_the_newest_players():
    config = LeagueConfig.from_dict(
        {"env": "openspiel:kuhn_poker", "players": {"main": {"kind": "random"}}, "evaluation": "exact"}
    )
    games = envs.make_two_player(config.env, 2, 3)
    players, returns = policies(games, 30), Returns()
    evaluator = evaluator_by_settings(config, games, returns, players.__getitem__, 1)
    for count in range(3, 31, 3):  # three players join per evaluated one
        assert evaluator.step(np.arange(count))
    slots = np.arange(30)
    known = np.flatnonzero(returns.games(slots).diagonal())
    assert known.tolist() == [*range(2, 30, 3)] and (returns.games(slots)[np.ix_(known, known)] == 1.0).all()
    mixture = evaluator.mixture(slots)
    assert set(np.flatnonzero(mixture.max(axis=0))) <= set(known.tolist())


def test_exact_cells_match_the_whole_game_and_are_computed_once():
    config = LeagueConfig.from_dict(
        {"env": "openspiel:kuhn_poker", "players": {"main": {"kind": "random"}}, "evaluation": "exact"}
    )
    games = envs.make_two_player(config.env, 2, 3)
    players, returns, tabulated = policies(games, 5), Returns(), []

    def policy_of(slot):
        tabulated.append(slot)
        return players[slot]

    evaluator = evaluator_by_settings(config, games, returns, policy_of, 1)
    assert [evaluator.step(np.arange(count)) for count in (3, 3, 3, 3)] == [True, True, True, False]
    assert [evaluator.step(np.arange(5)) for _ in range(3)] == [True, True, False]
    exact, slots = exact_cells(config.env, players), np.arange(5)
    np.testing.assert_allclose(returns.matrix(slots), exact, atol=1e-12)
    assert returns.total_games == 25 and returns.found_by() == "exact" and sorted(tabulated) == [0, 1, 2, 3, 4]
    mixture = evaluator.mixture(slots)
    value = mixture[0] @ exact @ mixture[1]
    assert (exact @ mixture[1]).max() - value < 1e-9 and value - (mixture[0] @ exact).min() < 1e-9
    assert evaluator.gain_within(slots, mixture) == pytest.approx((0.0, 0.0), abs=1e-9)
    with pytest.raises(ConfigurationError, match="evaluation of the league"):
        LeagueConfig.from_dict({"env": config.env, "players": {"main": {"kind": "random"}}, "evaluation": "exactly"})


def test_a_player_that_has_not_met_a_whole_mixture_is_not_in_it():
    games = envs.make_two_player("matrix:rps", 16, 3)
    players = policies(games, 4, spread=3.0)
    evaluator, returns = evaluator_of(players, games, rounds=1, least=16, error=1.0)
    slots, played = np.arange(4), []
    while wanted := evaluator.next_cells(slots):
        mixture = evaluator.mixture(slots)
        np.testing.assert_allclose(mixture.sum(axis=1), 1.0)
        inside = np.flatnonzero(mixture.max(axis=0))
        assert played == [] or (returns.games(slots)[np.ix_(inside, inside)] >= 16).all()
        played.append(wanted[0])
        evaluator.step(slots)
    assert len(set(played)) == len(played)  # `error` is wide: every cell that is wanted is played once
    assert (returns.games(slots) <= 16).all()


def test_players_outside_the_mixture_hardly_meet_each_other():
    # Action i beats all below it: after the top player has met all, cells between the others can change nothing.
    ladder = np.sign(np.subtract.outer(np.arange(8), np.arange(8)))
    games = envs.make_two_player("matrix:payoffs", 512, 3, matrix=ladder.tolist())
    players = policies(games, 8, spread=0.0)
    for action, policy in enumerate(players):
        policy.network.policy_trunk.layers[-1].bias.data[:] = 50.0 * torch.eye(8)[action]
    evaluator, returns = evaluator_of(players, games, rounds=1, least=512, error=0.1)
    slots = np.arange(8)
    while evaluator.step(slots):
        pass
    np.testing.assert_allclose(evaluator.mixture(slots)[:, 7], 1.0)
    met = returns.games(slots) > 0
    assert met[7].all() and met[:, 7].all() and met.sum() < 30


@pytest.mark.parametrize("source", ["games", "exact"])
def test_a_player_that_cannot_be_loaded_is_skipped_and_named_once(source, caplog):
    league = LeagueConfig(
        "matrix:rps", {"main": PlayerConfig("main_agent")}, evaluation=source, cell_least=256, cell_most=256
    )
    games = envs.make_two_player(league.env, 64, 3)
    players, returns, damaged, slots = policies(games, 4), Returns(), {3}, np.arange(4)

    def policy_of(slot):
        if slot in damaged:
            raise CheckpointError(f"hand@{slot} is of another network")
        return players[slot]

    evaluator = evaluator_by_settings(league, games, returns, policy_of, 1)
    while evaluator.step(slots, np.array([False, False, False, True])):
        pass
    met = returns.games(slots) > 0
    assert met[:3, :3].any() and not met[3].any() and not met[:, 3].any()
    assert caplog.text.count("hand@3 is of another network") == 1
    damaged.clear()
    evaluator.policy_of._until[3] = 0.0  # some minutes later
    while evaluator.step(slots):
        pass
    assert returns.games(slots)[3].any()


def test_only_claimed_cells_are_played():
    games = envs.make_two_player("matrix:rps", 16, 3)
    offered = []

    class Others:
        def claim(self, cells):
            offered.append(list(cells))
            return cells[1] if len(cells) > 1 else None

    evaluator, returns = evaluator_of(policies(games, 3), games, rounds=1, least=16, error=0.5, claims=Others())
    slots = np.arange(3)
    returns.record(0, 0, np.zeros(16))
    assert evaluator.step(slots)
    assert offered[0][0] != offered[0][1]
    assert returns.games(slots)[offered[0][1]] == 16 and returns.games(slots)[offered[0][0]] == 0


def test_cells_that_matter_get_more_games_until_their_error_is_small():
    games = envs.make_two_player("matrix:payoffs", 64, 3, matrix=[[0, 0.1, 1], [-0.1, 0, 1], [-1, -1, 0]])
    players = policies(games, 3, spread=0.0)
    for action, policy in enumerate(players):  # each plays one row for certain; the last is beaten by both others
        policy.network.policy_trunk.layers[-1].bias.data[:] = 50.0 * torch.eye(3)[action]
    evaluator, returns = evaluator_of(players, games, rounds=1, least=64, error=0.05, most=40_000)
    slots = np.arange(3)
    while evaluator.step(slots):
        pass
    counts, (lower, upper) = returns.games(slots), returns.interval(slots, 1.0, 0.05)
    assert ((upper - lower)[:2, :2] <= 0.1).all() and counts[0, 1] > counts[0, 0] > 64
    assert counts[2].max() == counts[:, 2].max() <= 64 * 3  # it loses to both
    assert evaluator.mixture(slots)[:, 0].min() > 0.99
    low, high = evaluator.gain_within(slots, evaluator.mixture(slots)) or (0.0, 0.0)
    assert low == 0.0 and 0.0 <= high < 0.2


def test_cells_of_equal_results_are_known_only_after_enough_games():
    # After 64 equal results an interval of standard errors has no width, though the next game may differ.
    games = envs.make_two_player("matrix:rps", 64, 3)
    players = policies(games, 2, spread=0.0)
    for action, policy in enumerate(players):
        policy.network.policy_trunk.layers[-1].bias.data[:] = 50.0 * torch.eye(3)[action]
    evaluator, returns = evaluator_of(players, games, rounds=1, least=64, error=0.05)
    slots = np.arange(2)
    while evaluator.step(slots):
        pass
    assert returns.errors(slots)[1, 1] == 0.0 and returns.games(slots)[1, 1] > 300


def test_bounds_of_the_members_gain_hold_the_exact_gain():
    games = envs.make_two_player("matrix:rps", 512, 3)
    players = policies(games, 5, spread=3.0)
    evaluator, _ = evaluator_of(players, games, rounds=4, least=4096, error=0.05)
    slots = np.arange(5)
    while evaluator.step(slots):
        pass
    form = exploitability.load("matrix:rps")
    payoff = exploitability.payoff(form, [exploitability.tabulate(form, policy.probabilities) for policy in players])
    for mixture in (evaluator.mixture(slots), np.full((2, 5), 0.2)):
        low, high = evaluator.gain_within(slots, mixture)
        gain = ((payoff @ mixture[1]).max() - (mixture[0] @ payoff).min()) / 2.0
        assert low <= gain <= high < gain + 0.2
    assert low > 0.0  # some player certainly gains on the uniform mixture
    assert evaluator.gain_within(slots, np.eye(1, 5).repeat(2, axis=0)) is None


@pytest.mark.parametrize("source", ["exact", "games"])
def test_an_exploiter_outside_the_mixture_counts_in_gain_within(source):
    games = envs.make_two_player("matrix:rps", 512, 3)
    players = policies(games, 4, spread=0.0)
    for policy, action in zip(players, (0, 0, 1, 2), strict=True):
        policy.network.policy_trunk.layers[-1].bias.data[:] = 50.0 * torch.eye(3)[action]
    league = LeagueConfig(
        "matrix:rps",
        {"main": PlayerConfig("main_agent")},
        evaluation=source,
        mixture_exploiters=False,
        cell_least=4096,
        evaluation_rounds=4,
    )
    evaluator = evaluator_by_settings(league, games, Returns(), players.__getitem__, 1)
    slots, played = np.arange(4), np.array([True, True, False, False])
    while evaluator.step(slots, played):
        pass
    mixture = evaluator.mixture(slots, played)
    assert not mixture[:, 2:].any()
    low, high = evaluator.gain_within(slots, mixture, played)
    payoff = exact_cells("matrix:rps", players)
    gain = ((payoff @ mixture[1]).max() - (mixture[0] @ payoff).min()) / 2.0
    of_members = ((payoff @ mixture[1])[:2].max() - (mixture[0] @ payoff)[:2].min()) / 2.0
    assert gain > of_members + 0.2, "only the exploiters gain this much"
    assert low - 1e-6 <= gain <= high + 1e-6 and low > of_members + 0.1


def test_bounds_of_the_gain_widen_with_the_number_of_players():
    games = envs.make_two_player("matrix:rps", 512, 3)
    evaluator, _ = evaluator_of(policies(games, 20, spread=3.0), games, rounds=4, least=4096, error=0.05)
    while evaluator.step(np.arange(3)):
        pass
    widths = []
    for players in (3, 20):
        mixture = np.zeros((2, players))
        mixture[:, :3] = 1 / 3
        low, high = evaluator.gain_within(np.arange(players), mixture)
        widths.append(high - low)
    assert widths[0] < widths[1] < 2.0 * widths[0]


def test_returns_above_a_stated_bound_are_refused_and_raise_a_guessed_one(caplog):
    games = envs.make_two_player("openspiel:kuhn_poker", 64, 3)
    assert games.max_return == 2.0
    strict, _ = evaluator_of(policies(games, 1), games, bound=1.0)
    with pytest.raises(ConfigurationError, match=r"returned 2, beyond the 1 .* give league.max_return, at least 2"):
        strict.step(np.arange(1))
    guessing, returns = evaluator_of(policies(games, 1), games, bound=None)
    assert guessing.step(np.arange(1)) and "returned 2" in caplog.text
    assert returns.total_games == 128 and returns.bound == 2.0


@pytest.mark.parametrize("bound", [2.0, None])
def test_returns_that_are_not_finite_are_refused_with_the_games_name(bound):
    games = envs.make_two_player("openspiel:kuhn_poker", 2, 3)
    evaluator, _ = evaluator_of([], games, bound=bound)
    with pytest.raises(ConfigurationError, match=r"a game of 'openspiel:kuhn_poker' returned nan"):
        evaluator.hold_within(np.array([1.0, np.nan], np.float32))


def test_a_restarted_evaluator_keeps_the_largest_return_seen():
    games = envs.make_two_player("openspiel:kuhn_poker", 64, 3)
    players, returns = policies(games, 2), Returns()

    def started():
        return Evaluator(games, returns, players.__getitem__, seed=1, rounds=1, least=64, most=64, bound=None)

    evaluator, slots, mixture = started(), np.arange(2), np.full((2, 2), 0.5)
    while evaluator.step(slots):
        pass
    before = evaluator.gain_within(slots, mixture)
    assert started().gain_within(slots, mixture) == before


def test_a_higher_temperature_brings_the_mixture_nearer_to_uniform():
    games = envs.make_two_player("matrix:rps", 64, 3)
    players, spread = policies(games, 4, spread=3.0), []
    for temperature in (0.25, 1.0, 100.0):
        evaluator, _ = evaluator_of(players, games, rounds=1, least=64, most=64, temperature=temperature)
        while evaluator.step(np.arange(4)):
            pass
        spread.append(evaluator.mixture(np.arange(4)).std())
    assert spread[0] > spread[1] > spread[2] and spread[2] < 0.05


def test_a_cell_stops_at_the_first_whole_round_past_the_bound():
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
