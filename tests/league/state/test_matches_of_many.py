"""Matches of more than two players, and players of one side, in memory; test_one_rule.py has them on Redis."""

from __future__ import annotations

import numpy as np
import pytest

from league.matchmaking import kind_of
from league.rules.ratings import Skills
from league.rules.settings import Settings
from league.rules.win_rates import pairs_of, placements_of
from league.state.in_memory import MemoryLeague
from league.state.league_state import Event
from league.state.replay import fold
from warren.errors import ConfigurationError, MatchmakingError


def test_a_place_is_the_number_of_players_that_gained_more() -> None:
    returns = np.array([[2, 1, -3], [0, 0, 0], [-1, 2, -1], [-2, 1, 1]], np.float32)
    assert placements_of(returns) == "012000101200"
    assert placements_of(returns, series=2) == "012201"  # (2, 1, -3), (-3, 3, 0)
    assert pairs_of("012000101200", 3) == [(0, 1, "wdll"), (0, 2, "wddl"), (1, 2, "wdwd")]
    assert pairs_of("wdl", 2) == [(0, 1, "wdl")]
    for wrong, players in (("", 3), ("01", 3), ("013", 3), ("wdl", 3), ("01", 2), ("", 2)):
        with pytest.raises(ValueError, match=f"^{wrong}$"):
            pairs_of(wrong, players)


def test_a_match_of_three_counts_for_each_pair_and_is_rated_by_placements() -> None:
    events: list[Event] = []
    league = MemoryLeague(Settings(decay=1.0), seed=1, on_event=events.append)
    for name in ("a", "b", "c"):
        league.add_player(name, "random")
    met = set()
    for _ in range(40):
        match = league.request("a", opponents=2)
        met.add(match.names)
        place = {"a": 0, "b": 1, "c": 2}
        order = [place[name] for name in match.names]
        placed = "".join(str(sum(other < mine for other in order)) for mine in order)
        assert league.report(match, placed * 2) == "counted"
    assert met == {("a", one, other) for one in "bc" for other in "bc"}, "opponents are drawn independently"
    state = league.state
    assert state.counters["games"] == 80
    slots = np.arange(3)
    assert state.win_rates(0, slots).tolist() == [0.5, 1.0, 1.0]
    assert state.win_rates(1, slots).tolist() == [0.0, 0.5, 1.0], "b and c met as opponents of a"
    assert state.ratings[0] > state.ratings[1] > state.ratings[2] and sum(state.ratings) == pytest.approx(3600.0)
    skills = Skills()
    assert fold([(f"{place}-0", event) for place, event in enumerate(events)], skills) == state
    for better, worse in (("a", "b"), ("b", "c")):
        assert skills[better].interval()[0] > skills[worse].interval()[1]


def test_outcomes_for_a_wrong_number_of_players_abort_the_match() -> None:
    league = MemoryLeague()
    for name in ("a", "b", "c"):
        league.add_player(name, "random")
    for opponents, outcomes in ((2, "wdl"), (2, "01"), (1, "012")):
        assert league.report(league.request("a", opponents), outcomes) == "aborted"
    assert league.state.counters["aborted:malformed"] == 3 and not league.state.payoff.cells.any()


def of_roles(*players: tuple[str, str, int]) -> MemoryLeague:
    league = MemoryLeague(seed=3)
    for name, kind, side in players:
        league.add_player(name, kind, {"side": side})
    return league


def test_players_of_a_side_meet_only_those_of_the_other() -> None:
    league = of_roles(("attacker", "main_agent", 0), ("defender", "main_agent", 1), ("breaker", "main_exploiter", 0))
    for name in ("attacker", "defender"):
        league.snapshot(name, 0)
    met: dict[str, set[tuple[str, str]]] = {}
    for name in ("attacker", "defender", "breaker"):
        for _ in range(60):
            match = league.request(name)
            met.setdefault(name, set()).add((match.away, match.branch.rpartition("_")[2]))
    assert met["attacker"] == {("defender", "1"), ("defender@0", "1")}
    assert met["defender"] == {("attacker", "0"), ("attacker@0", "0")}
    assert met["breaker"] == {("defender", "1")}, "it exploits the main agent of the other side"


def test_each_of_three_sides_is_played_by_its_own_player() -> None:
    league = of_roles(("first", "random", 0), ("second", "pfsp", 1), ("third", "random", 2))
    assert league.request("second", opponents=2).names == ("second", "third", "first")
    assert league.request("third", opponents=2).names == ("third", "first", "second")
    assert league.request("third", opponents=2).branch == "random_in_seat_0"


def test_a_player_without_opponents_on_another_side_is_refused() -> None:
    league = of_roles(("attacker", "random", 0))
    with pytest.raises(MatchmakingError, match="'attacker' has no opponent on another side"):
        league.request("attacker")


@pytest.mark.parametrize(
    ("kind", "config", "problem"),
    [
        ("psro", {"side": 0}, "takes every side"),
        ("pbt_elo", {"side": 1}, "takes every side"),
        ("self_play", {"side": 0}, "takes every side"),
        ("main_exploiter", {"side": 0, "freeze": "returns"}, "takes every side"),
        ("pfsp", {"side": 0, "self_share": 0.5}, "cannot meet itself"),
        ("random", {"side": -1}, "side=-1 is not the number of a team"),
        ("random", {"side": "left"}, "side='left' is not the number of a team"),
    ],
)
def test_kinds_that_cannot_take_one_side_are_refused(kind: str, config: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        kind_of(kind, config)
