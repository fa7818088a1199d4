from collections import Counter

import pytest

import envs
from agents import build_policy
from league.state.in_memory import MemoryLeague
from warren.errors import PlayerUnavailable
from workers.rollout.games.match_scheduler import Matches, MatchHost
from workers.rollout.games.selfplay_sampler import MatchSampler, Opponent


class LeagueInMemory(MatchHost):
    def __init__(self, league, rivals):
        self.league, self.rivals, self.told = league, rivals, []

    def request(self):
        return self.league.request("main")

    def opponent(self, match):
        return Opponent(match.id, self.rivals.get(match.away))

    def report(self, match, result):
        self.told.append((match, result))
        if len(result.returns):
            self.league.report(match, result.outcomes())
        else:
            self.league.abort(match)

    def between_moves(self):
        pass


def playing(tables=2, match_games=50, self_share=0.3, slots=16):
    games = envs.make_two_player("openspiel:kuhn_poker", slots, 1)
    spaces = games.single_observation_space, games.single_action_space
    policy = build_policy({"hidden_sizes": []}, *spaces, 1)
    sampler = MatchSampler(games, policy, seed=1, tables=tables)
    league = MemoryLeague(seed=1)
    league.add_player("main", "random", {"self_share": self_share})
    rivals = {}
    for version in range(3):
        rivals[league.snapshot("main", version).name] = build_policy({"hidden_sizes": []}, *spaces, version)
    host = LeagueInMemory(league, rivals)
    return Matches(sampler, match_games, host), league, host.told


def test_every_requested_match_is_reported_once_or_under_way():
    matches, league, told = playing()
    for _ in range(20):
        matches.collect(16)
    assert len(told) > 20
    assert max(Counter(match.id for match, _ in told).values()) == 1
    counters = league.state.counters
    assert counters["issued"] == counters["counted"] + len(league.state.matches)
    assert len(league.state.matches) <= 4  # at each of two tables one match, and one that plays its last games
    assert {match.away for match, _ in told} == set(league.state.players)


def test_the_share_of_decisions_learned_from_is_the_configured_one():
    matches, _, _ = playing(tables=32, match_games=8, self_share=0.75, slots=256)
    sampler, learned = matches.sampler, Counter()
    take = sampler.take_decisions

    def count(request, *decisions):
        if request.learns:
            learned.update(sampler.seating.known[n].policy is None for n in sampler.seating.met[request.rows].tolist())
        take(request, *decisions)

    sampler.take_decisions = count
    while learned.total() < 15_000:
        matches.collect(32)
    assert learned[False] / learned.total() == pytest.approx(0.25, abs=0.05)


def test_a_match_has_the_games_asked_for_and_those_that_had_begun():
    matches, _, told = playing(tables=1, match_games=50)
    matches.collect(100)
    lengths = [len(result.returns) for _, result in told]
    assert lengths and min(lengths) >= 50 and max(lengths) <= 50 + 2 * 16


def test_a_restart_ends_all_matches_and_begins_others():
    matches, league, told = playing()
    matches.collect(4)
    before = set(league.state.matches)
    matches.restart()
    matches.collect(1)
    assert {match.id for match, _ in told} >= before
    assert league.state.matches.keys().isdisjoint(before)


def test_a_trajectory_is_of_one_policy_even_if_a_restart_comes_meanwhile():
    matches, _, _ = playing()
    asked = []

    def between():
        asked.append(1)
        if len(asked) == 5:
            matches.load(matches.policy.state_dict(), 7)  # it becomes the policy of version 7
            matches.restart()

    matches.host.between_moves = between
    trajectory = matches.collect(32)
    assert len(asked) > 5 and set(trajectory.version.tolist()) == {7}


def test_unplayed_matches_are_given_back():
    matches, league, _ = playing()

    def stop():
        raise PlayerUnavailable("before the first move")

    matches.host.between_moves = stop
    with pytest.raises(PlayerUnavailable):
        matches.collect(4)
    assert len(matches.held) == 2
    matches.leave()
    assert league.state.counters["aborted"] == 2


def test_a_match_whose_lease_ran_out_is_not_reported_and_its_table_gets_another():
    matches, _, told = playing(match_games=10_000)
    matches.collect(4)
    lost = matches.held
    matches.lose([*lost, "never issued"])
    assert matches.held == []
    matches.collect(64)
    assert told == []
    assert len(matches.held) == 2 and set(matches.held).isdisjoint(lost)


def test_a_table_plays_on_in_its_match_while_the_league_has_no_other():
    matches, _, told = playing(match_games=10)
    matches.collect(4)
    held, request = list(matches._tables), matches.host.request

    def waits():
        raise PlayerUnavailable("paused")

    matches.host.request = waits
    matches.collect(64)
    assert matches._tables == held
    matches.host.request = request
    matches.collect(64)
    assert set(held).isdisjoint(matches.held) and told


def test_the_host_is_called_between_the_moves_of_a_long_rollout():
    matches, _, _ = playing()
    asked = []
    matches.host.between_moves = lambda: asked.append(1)
    matches.collect(64)
    assert len(asked) > 20


@pytest.mark.parametrize("failing", ["request", "report"])
def test_a_restart_that_the_league_refused_is_made_later(failing):
    matches, league, told = playing()
    matches.collect(4)
    before = set(league.state.matches)
    asked, working = [], getattr(matches.host, failing)

    def refuse(*arguments):
        asked.append(arguments)
        if len(asked) > 1:  # in the middle of the restart
            raise PlayerUnavailable("paused")
        return working(*arguments)

    setattr(matches.host, failing, refuse)
    matches.restart()
    for _ in range(2):
        with pytest.raises(PlayerUnavailable):
            matches.collect(4)
    setattr(matches.host, failing, working)
    matches.collect(64)
    assert max(Counter(match.id for match, _ in told).values()) == 1
    assert {match.id for match, _ in told} >= before
    counters = league.state.counters
    assert counters["issued"] == counters["counted"] + counters["aborted"] + len(league.state.matches)
