from collections import Counter

import envs
from agents import build_policy
from league.memory import MemoryLeague
from workers.match_sampler import MatchSampler
from workers.matches import Matches


def playing(tables=2, match_games=50):
    games = envs.make_two_player("openspiel:kuhn_poker", 16, 1)
    spaces = games.single_observation_space, games.single_action_space
    policy = build_policy({"hidden_sizes": []}, *spaces, 1)
    sampler = MatchSampler(games, policy, seed=1, tables=tables)
    league = MemoryLeague(seed=1)
    league.add_player("main", "random", {"self_share": 0.3})
    rivals = {}
    for version in range(3):
        rivals[league.snapshot("main", version).name] = build_policy({"hidden_sizes": []}, *spaces, version)
    told = []

    def report(match, result):
        told.append((match, result))
        if len(result.returns):
            league.report(match, result.outcomes())
        else:
            league.abort(match)

    matches = Matches(
        sampler, match_games, lambda: league.request("main"), report, lambda match: rivals.get(match.away)
    )
    return matches, league, told


def test_every_match_that_was_asked_for_is_reported_once_or_under_way():
    matches, league, told = playing()
    for _ in range(20):
        matches.collect(16)
    assert len(told) > 20
    assert max(Counter(match.match for match, _ in told).values()) == 1
    counters = league.state.counters
    assert counters["issued"] == counters["counted"] + len(league.state.matches)
    assert len(league.state.matches) <= 4  # of two tables: the match of each, and one whose last games are played
    assert {match.away for match, _ in told} == set(league.state.players)


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
    assert {match.match for match, _ in told} >= before
    assert league.state.matches.keys().isdisjoint(before) and len(league.state.matches) == 2
    aborted = league.state.counters["aborted"]
    matches.restart()
    assert league.state.counters["aborted"] == aborted + 2  # nothing was played in those
    matches.collect(4)
