import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import envs
from agents import Trajectory, build_policy
from agents.operators.advantages import generalized_advantage
from envs import exploitability
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.selfplay_sampler import MatchSampler, Opponent

KUHN, LEDUC = "openspiel:kuhn_poker", "openspiel:leduc_poker"


pytestmark = pytest.mark.usefixtures("one_thread")


def make(env_id=KUHN, num_envs=32, seed=1, **options):
    games = envs.make_two_player(env_id, num_envs, seed)
    return MatchSampler(games, policy_for(games, seed), seed, **options)


def policy_for(games, seed, spread=1.0):
    """Return a random policy that is far from uniform."""
    policy = build_policy({"hidden_sizes": [16]}, games.single_observation_space, games.single_action_space, seed)
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        parameter.data.add_(spread * torch.randn(parameter.shape, generator=generator))
    return policy


class Watched:
    """Games that record their turns and actions, to check the sampler by."""

    def __init__(self, games):
        self.games, self.turns, self.actions = games, [], []

    def __getattr__(self, name):
        return getattr(self.games, name)

    def reset(self):
        self.turns.append(self.games.reset())
        return self.turns[-1]

    def step(self, action):
        self.actions.append(action.copy())
        self.turns.append(self.games.step(action))
        return self.turns[-1]

    def decisions(self, slot, seat, mirror):
        """Return (observation, action, reward until the next one or the end, game over) of one seat of one slot.

        Without a mirror, only of games in which the learning side has that seat: it begins in seat 0 of even slots, and
        changes with every game.
        """
        story, home = [], slot % 2
        for turn, action, after in zip(self.turns, self.actions, self.turns[1:], strict=False):
            if turn.to_move[slot] == seat and (mirror or home == seat):
                story.append([turn.observation[slot], action[slot], 0.0, False])
            if story and not story[-1][3]:
                story[-1][2] += after.reward[slot, seat]
                story[-1][3] = bool(after.done[slot])
            if after.done[slot]:
                home = 1 - home
        return story


@pytest.mark.parametrize("env_id", [KUHN, LEDUC])
@pytest.mark.parametrize("mirror", [True, False])
def test_trajectories_hold_the_decisions_of_the_learning_seats(env_id, mirror):
    watched = Watched(envs.make_two_player(env_id, 4, 3))
    sampler = MatchSampler(watched, policy_for(watched, 1), seed=5, unroll_length=6)
    if not mirror:
        sampler.seat(0, Opponent("rival", policy_for(watched, 2)))
    collected = [Trajectory.from_dict(sampler.collect(3).to_dict()) for _ in range(8)]
    stories = [watched.decisions(slot, seat, mirror) for slot in range(4) for seat in range(2)]
    games = [tuple_of(game) for story in stories for game in games_in(story)]
    starts = {game[:end] for game in games for end in range(1, len(game) + 1)}
    runs = {game[start:end] for game in games for start in range(len(game)) for end in range(start + 1, len(game) + 1)}
    trajectories = set()
    for trajectory, n in [(trajectory, n) for trajectory in collected for n in range(3)]:
        steps = zip(
            trajectory.observation[:, n],
            trajectory.action[:, n],
            trajectory.reward[:, n],
            trajectory.terminated[:, n],
            strict=True,
        )
        first, *others = map(tuple_of, games_in(steps))
        assert first in runs, "it may go on with a game that another trajectory began"
        assert set(others) <= starts, "one whole game after another, and the beginning of a last one"
        trajectories.add((first, *others))
    assert len(trajectories) > 12


def games_in(steps):
    """Return the steps of a trajectory or of a seat, game by game; the last may be unfinished."""
    game = []
    for step in steps:
        game.append(step)
        if step[3]:
            yield game
            game = []
    if game:
        yield game


def tuple_of(steps):
    return tuple((o.tobytes(), int(a), round(float(r), 4), bool(done)) for o, a, r, done in steps)


@pytest.mark.parametrize("env_id", [KUHN, LEDUC])
def test_minimax_rewards_a_player_for_the_fall_of_its_opponents_value(env_id):
    watched = Watched(envs.make_two_player(env_id, 4, 3))
    options = {"unroll_length": 6, "reward_scale": 0.5, "minimax": 0.9}
    sampler = MatchSampler(watched, policy_for(watched, 1), seed=5, **options)
    rival = policy_for(watched, 2)
    sampler.seat(0, Opponent("rival", rival))
    trajectory = sampler.collect(40)
    expected = []  # (observation, action, reward, end) of each decision of the learning side, from the games themselves
    for slot in range(4):
        home, last, worth = slot % 2, None, 0.0
        for turn, action, after in zip(watched.turns, watched.actions, watched.turns[1:], strict=False):
            if turn.to_move[slot] == home:
                last = [turn.observation[slot], action[slot], 0.0, False]
                expected.append(last)
            else:
                now = float(rival.value(turn.observation[slot][None])[0])
                if last is not None:
                    last[2] += 0.9 * (worth - now)
                worth = now
            if last is not None:
                last[2] += 0.5 * after.reward[slot, home]
                last[3] = bool(after.done[slot])
            if after.done[slot]:
                last[2] += 0.9 * worth
                home, last, worth = 1 - home, None, 0.0
    lived = [
        (trajectory.observation[t, n], trajectory.action[t, n], trajectory.reward[t, n], trajectory.terminated[t, n])
        for n in range(40)
        for t in range(6)
    ]
    for observation, action, reward, done in lived:
        told = [r for o, a, r, d in expected if a == action and d == done and (o == observation).all()]
        assert min(abs(reward - r) for r in told) < 1e-4
    assert any(abs(2 * reward - round(2 * float(reward))) > 0.01 for _, _, reward, _ in lived), (
        "the game's own rewards are whole"
    )
    (result,) = sampler.pop_results()
    assert set(np.abs(result.returns).tolist()) <= {float(stake) for stake in range(14)}, "results are without minimax"


def test_a_mirror_match_is_not_changed_by_minimax():
    plain, minimax = (make(LEDUC, unroll_length=4, minimax=part).collect(30) for part in (0.0, 1.0))
    np.testing.assert_array_equal(plain.reward, minimax.reward)


def test_log_probabilities_values_and_the_bootstrap_are_the_policys():
    sampler = make(LEDUC, unroll_length=3)
    trajectory = sampler.collect(40)
    flat = lambda array: torch.from_numpy(array.reshape(120, *array.shape[2:]))  # noqa: E731
    log_prob, _, value, _ = sampler.policy.evaluate(
        flat(trajectory.observation), flat(trajectory.action), flat(trajectory.action_mask)
    )
    np.testing.assert_allclose(trajectory.extras["log_prob"].ravel(), log_prob.detach(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trajectory.extras["value"].ravel(), value.detach(), rtol=1e-4, atol=1e-5)
    cut = ~trajectory.terminated[-1]
    assert cut.any() and (trajectory.last["value"][cut] != 0).all() and (trajectory.last["value"][~cut] == 0).all()


def test_advantages_of_a_lane_stop_at_the_ends_of_games():
    trajectory = make(KUHN, unroll_length=8).collect(20)
    s = trajectory
    advantage = generalized_advantage(
        s.reward, s.extras["value"], s.terminated, s.truncated, s.cut["value"], s.last["value"], 1.0, 1.0
    )
    steps, trajectories = np.nonzero(trajectory.terminated)
    np.testing.assert_allclose(
        advantage[steps, trajectories],
        trajectory.reward[steps, trajectories] - trajectory.extras["value"][steps, trajectories],
        rtol=1e-5,
    )


def test_returns_against_an_opponent_match_the_exact_payoff():
    sampler = make(LEDUC, num_envs=64)
    rival = policy_for(sampler.games, 9)
    sampler.seat(0, Opponent("rival", rival))
    while sampler.decisions < 30_000:
        sampler.collect(256)
    (result,) = sampler.pop_results()
    form = exploitability.load(LEDUC)
    policies = [exploitability.tabulate(form, p.probabilities) for p in (sampler.policy, rival)]
    expected = exploitability.payoff(form, policies)[0, 1]
    error = result.returns.std() / np.sqrt(len(result.returns))
    assert result.opponent == "rival"
    assert abs(result.returns.mean() - expected) < 4 * error < 0.4


def test_both_seats_are_played_equally_at_every_table():
    watched = Watched(envs.make_two_player(KUHN, 16, 3))
    sampler = MatchSampler(watched, policy_for(watched, 1), seed=5, tables=4)
    assert all(sorted(sampler.seating.home[sampler.seating.table == table]) == [0, 0, 1, 1] for table in range(4))
    seats = np.zeros(2)
    for _ in range(200):
        before = sampler.seating.home.copy()
        sampler.advance()
        np.add.at(seats, before[watched.turns[-1].done], 1)
    assert abs(seats[0] - seats[1]) <= 16


def test_an_opponent_that_comes_for_a_seat_has_it_in_all_games_of_its_table():
    watched = Watched(envs.make_two_player(KUHN, 16, 3))
    sampler = MatchSampler(watched, policy_for(watched, 1), seed=5, tables=4)
    rival = policy_for(watched, 2)
    for table, seat in enumerate((0, 1, None, 0)):
        sampler.seat(table, Opponent(f"match {table}", rival, seat=seat))
    seats = np.zeros((4, 2))
    for step in range(200):
        if step == 100:  # the last table's next opponent takes the other seat, in games that begin from now on
            sampler.seat(3, Opponent("later", rival, seat=1))
        before = sampler.seating.home.copy()
        sampler.advance()
        done = watched.turns[-1].done
        np.add.at(seats, (sampler.seating.table[done], before[done]), 1)
    assert seats[0, 0] == 0 < seats[0, 1] and seats[1, 1] == 0 < seats[1, 0]
    assert abs(seats[2, 0] - seats[2, 1]) <= 4 and seats[3].min() > 50
    sampler.restart()
    assert sorted(sampler.seating.home[sampler.seating.table == 3]) == [0, 0, 0, 0]


def test_a_table_ends_games_with_their_opponent_and_keeps_results_apart():
    sampler = make(KUHN, num_envs=8, tables=2)
    rivals = {name: policy_for(sampler.games, seed) for seed, name in enumerate("abc")}
    sampler.seat(0, Opponent("a", rivals["a"]))
    sampler.seat(1, Opponent("b", rivals["b"]))
    sampler.collect(20)
    assert sampler.in_play() == {"a", "b"}
    sampler.seat(1, Opponent("c", rivals["c"]))
    assert sampler.in_play() == {"a", "b", "c"}  # games against b are still under way
    sampler.collect(40)
    results = {result.opponent: len(result.returns) for result in sampler.pop_results()}
    assert results.keys() == {"a", "b", "c"}
    assert sampler.in_play() == {"a", "c"}
    assert sampler.pop_results() == []


def test_only_the_learning_side_learns_from_an_opponent_and_both_from_a_mirror():
    decisions = {}
    for mirror in (True, False):
        sampler = make(KUHN, num_envs=64)
        if not mirror:
            sampler.seat(0, Opponent("twin", sampler.policy))
        sampler.collect(500)
        moves = sum(int((result.returns != 0).sum()) for result in sampler.pop_results())
        decisions[mirror] = sampler.decisions / moves
    assert decisions[False] == pytest.approx(decisions[True] / 2, rel=0.1)


def test_opponents_with_the_same_weights_share_a_forward_pass():
    sampler = make(KUHN, num_envs=16, tables=4)
    rival = policy_for(sampler.games, 7)
    calls = []
    its_step = rival.step
    rival.step = lambda *a, **k: calls.append(len(a[0])) or its_step(*a, **k)
    for table in range(4):
        sampler.seat(table, Opponent(f"match {table}", rival))
    for step in range(1, 30):
        sampler.advance()
        assert len(calls) <= step
    assert {result.opponent for result in sampler.pop_results()} == {f"match {table}" for table in range(4)}


def test_a_restart_drops_experience_and_seats_the_next_opponent_at_once():
    sampler = make(KUHN, num_envs=8)
    sampler.collect(5)
    sampler.seat(0, Opponent("next", policy_for(sampler.games, 3)))
    sampler.restart()
    assert sampler.in_play() == {"next"}
    sampler.load(sampler.policy.state_dict(), 9)
    assert (sampler.collect(5).version == 9).all()


def test_rewards_are_scaled_and_results_are_not():
    trajectories, results = [], []
    for scale in (1.0, 0.25):
        sampler = make(LEDUC, reward_scale=scale)
        trajectories.append(sampler.collect(30))
        results.append(sampler.pop_results()[0].returns)
    np.testing.assert_allclose(0.25 * trajectories[0].reward, trajectories[1].reward)
    np.testing.assert_array_equal(*results)


def test_outcomes_are_of_games_or_of_series():
    result = MatchResult("x", np.array([1, -1, 0, 2, -5, 1, 1, 1], np.float32))
    assert result.outcomes() == "wldwlwww"
    assert result.outcomes(series=4) == "wl"
    assert result.outcomes(series=3) == "wl"  # 8 games are two series of at least 3
    assert result.outcomes(series=100) == "d"


def test_a_fair_game_is_won_as_often_as_lost():
    sampler = make("matrix:rps", num_envs=64)
    sampler.seat(0, Opponent("twin", sampler.policy))
    while sampler.decisions < 20_000:
        sampler.collect(100)
    outcomes = sampler.pop_results()[0].outcomes()
    won, lost = outcomes.count("w"), outcomes.count("l")
    assert binomtest(won, won + lost).pvalue > 1e-4
