"""Tests of seats in games of three players and of teams: their policies, what is learned, and results."""

import numpy as np
import pytest

import envs
from agents import build_policy
from envs.two_player.vector_env import decided_by, team_returns
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.seat_map import Opponent, SeatMap
from workers.rollout.games.selfplay_sampler import MatchSampler

KUHN, TOKENS = "openspiel:kuhn_poker?players=3", "examples/teams/tokens.py:Tokens"
pytestmark = pytest.mark.usefixtures("one_thread")


class Noted:
    """A policy that notes its observations."""

    def __init__(self, policy):
        self.policy, self.seen = policy, []

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def step(self, observation, *given, **named):
        self.seen.append(observation)
        return self.policy.step(observation, *given, **named)


def policy_for(games, seed):
    return build_policy({"hidden_sizes": [8]}, games.single_observation_space, games.single_action_space, seed)


def test_the_home_player_takes_each_team_in_turn_and_its_opponents_those_that_follow():
    one, two = object(), object()
    seating = SeatMap(6, tables=1, teams=((0,), (1,), (2,)))
    seating.invite(0, Opponent("match", one, others=(two,)))
    seating.meet(np.arange(6))
    assert seating.home.tolist() == [0, 1, 2, 0, 1, 2]
    for turns in range(3):
        for to_move in range(3):
            moving = seating.at(np.full(6, to_move))
            played = np.full(6, None, object)
            for policy, rows in seating.by_model(np.flatnonzero(~seating.mine(moving)), moving):
                played[rows] = policy
            places = [(to_move - (slot + turns)) % 3 for slot in range(6)]
            assert played.tolist() == [(None, one, two)[place] for place in places]
        seating.turn(np.arange(6))
        seating.meet(np.arange(6))


def test_an_opponent_for_one_side_leaves_the_side_before_to_the_home_player():
    seating = SeatMap(4, tables=1, teams=((0,), (1,), (2,)))
    seating.invite(0, Opponent("match", object(), seat=0, others=(None,)))
    seating.meet(np.arange(4))
    assert seating.home.tolist() == [2] * 4
    assert [seating.mine(seating.at(np.full(4, player))).all() for player in range(3)] == [False, True, True]


@pytest.mark.parametrize(("env_id", "teams"), [(KUHN, [[0], [1], [2]]), (TOKENS, [[0, 2], [1, 3]])])
def test_each_seat_is_decided_by_its_policy_and_only_home_learns(env_id, teams):
    games = envs.make_two_player(env_id, 12, 3)
    home, *others = (Noted(policy_for(games, seed)) for seed in range(len(teams)))
    sampler = MatchSampler(games, home, seed=5, unroll_length=4, tables=2)
    for table in range(2):
        sampler.seat(table, Opponent("match", others[0], others=tuple(others[1:])))
    for policy in (home, *others):
        policy.seen.clear()
    expected = [[] for _ in teams]
    for _ in range(60):
        turn, place = sampler._turn, (games.team_of - sampler.seating.home[:, None]) % len(teams)
        mover = place[np.arange(12), turn.to_move]
        for number in range(len(teams)):
            expected[number].append(turn.observation[mover == number])
        sampler.advance()
    for policy, wanted in zip((home, *others), expected, strict=True):
        assert np.array_equal(np.concatenate(policy.seen), np.concatenate(wanted))
    assert sampler.decisions == sum(map(len, expected[0])) > 100


@pytest.mark.parametrize("env_id", [KUHN, TOKENS])
def test_trajectories_hold_the_rewards_of_the_seats_that_were_learned_from(env_id):
    games = envs.make_two_player(env_id, 6, 1)
    sampler = MatchSampler(games, policy_for(games, 1), seed=2, unroll_length=2)  # against itself: all seats
    taken = sampler.collect(300)
    assert taken.terminated.any() and len(taken.episodes) > 5
    ended = np.abs(taken.reward).sum() > 0.0
    assert ended and abs(float(taken.reward.mean())) < 0.2, "what one seat wins others lose"
    decided = sampler.decisions / taken.num_steps
    assert 1.0 <= decided < 1.4, "every decision of every seat is learned from"


def test_results_of_three_teams_are_placements_from_the_home_players_side():
    games = envs.make_two_player(KUHN, 9, 4)
    policies = [policy_for(games, seed) for seed in range(3)]
    sampler = MatchSampler(games, policies[0], seed=5)
    sampler.seat(0, Opponent("match", policies[1], others=(policies[2],)))
    homes, returns = [], []
    inner = games.pop_finished

    def pop():
        finished = inner()
        homes.extend(sampler.seating.home[finished.index])
        returns.extend(finished.returns)
        return finished

    games.pop_finished = pop
    parts = []
    for _ in range(40):
        sampler.advance()
        parts += sampler.pop_results()
    result = MatchResult.joined("match", parts)
    rolled = np.array([np.roll(one, -home) for one, home in zip(returns, homes, strict=True)])
    assert np.array_equal(np.column_stack([result.returns, result.others]), rolled) and len(rolled) > 30
    outcomes = result.outcomes()
    assert len(outcomes) == 3 * len(rolled)
    for game, places in enumerate(zip(*[iter(outcomes)] * 3, strict=True)):
        assert [int(place) for place in places] == [(rolled[game] > mine).sum() for mine in rolled[game]]


def test_one_of_two_teams_of_unequal_size_gains_what_the_other_loses():
    one_against_three = np.array([[3.0, -1.0, -1.0, -1.0], [-3.0, 1.0, 1.0, 1.0]], np.float32)
    by_team = team_returns(one_against_three, [[0], [1, 2, 3]])
    alone, together = (decided_by(by_team, np.full(2, team))[:, 0] for team in (0, 1))
    assert alone.tolist() == [2.0, -2.0] and together.tolist() == [-2.0, 2.0]


def test_two_teams_that_are_not_zero_sum_are_counted_by_their_difference():
    returns = np.array([[3.0, 1.0, 2.0, 1.0], [1.0, 1.0, 4.0, 4.0]], np.float32)
    games = envs.make_two_player(TOKENS, 1, 0)
    games.zero_sum = False
    assert games.gained(returns).tolist() == [0.75, 0.0] and games.gained(returns, 1).tolist() == [-0.75, 0.0]
