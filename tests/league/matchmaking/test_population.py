"""league.matchmaking.population: PSRO and population-based training."""

from __future__ import annotations

import numpy as np
import pytest
from league_in_memory import add, league, named, set_win_rate

from league.matchmaking import distribution, kind_of
from league.rules.ratings import expected_score
from league.state.league_state import LeagueState


def rock_paper_scissors(kind: str) -> LeagueState:
    state = league()
    add(state, "main", kind)
    for version in (1, 2, 3):
        add(state, f"main@{version}", kind)
    for one, other in ((1, 2), (2, 3), (3, 1)):
        set_win_rate(state, f"main@{one}", f"main@{other}", 0.0)
    return state


@pytest.fixture
def population() -> LeagueState:
    state = league()
    for name, elo in (("a", 1200.0), ("b", 1210.0), ("c", 1500.0), ("d", 900.0)):
        add(state, name, "pbt_elo", elo=elo)
    return state


def play(state: LeagueState, name: str, kind: str, **config: object) -> dict[str, float]:
    return named(state, distribution(kind_of(kind, config), state, state.players[name]))


def test_psro_plays_the_nash_mixture_of_history() -> None:
    state = rock_paper_scissors("psro")
    assert play(state, "main", "psro") == pytest.approx({f"main@{version}": 1 / 3 for version in (1, 2, 3)})


@pytest.mark.parametrize("solver", ["nash", "alpha_rank", "replicator"])
def test_psro_leaves_out_who_is_dominated(solver: str) -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    for version in (1, 2, 3):
        set_win_rate(state, "main@4", f"main@{version}", 0.0)
    assert play(state, "main", "psro", solver=solver).get("main@4", 0.0) < 0.01


def test_psro_may_keep_a_share_for_itself_and_for_everyone() -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    for version in (1, 2, 3):
        set_win_rate(state, "main@4", f"main@{version}", 0.0)
    found = play(state, "main", "psro", self_share=0.2, uniform_share=0.4)
    assert found["main"] == pytest.approx(0.2) and found["main@4"] == pytest.approx(0.1)


def test_psro_solves_again_once_enough_matches_were_counted_or_someone_joined() -> None:
    state = rock_paper_scissors("psro")
    before = play(state, "main", "psro", refresh=10)
    set_win_rate(state, "main@1", "main@2", 1.0)
    set_win_rate(state, "main@1", "main@3", 1.0)
    state.counters["counted"] = 9
    assert play(state, "main", "psro", refresh=10) == before
    state.counters["counted"] = 10
    assert play(state, "main", "psro", refresh=10) == pytest.approx({"main@1": 1.0})
    add(state, "main@4", "psro")
    set_win_rate(state, "main@4", "main@1", 1.0)
    set_win_rate(state, "main@4", "main@2", 1.0)
    set_win_rate(state, "main@4", "main@3", 1.0)
    assert play(state, "main", "psro", refresh=10) == pytest.approx({"main@4": 1.0})


def test_pbt_plays_those_of_its_own_elo(population: LeagueState) -> None:
    expected = np.array([expected_score(1200.0, elo) for elo in (1210.0, 1500.0, 900.0)])
    density = np.exp(-np.square((expected - 0.5) * 6.0) / 2.0)
    found = play(population, "a", "pbt_elo")
    assert found == pytest.approx(dict(zip("bcd", density / density.sum(), strict=True)))
    assert found["b"] > 0.8 and "a" not in found


def test_pbt_lets_the_weak_copy_the_strong_and_never_the_other_way(population: LeagueState) -> None:
    kind, rng = kind_of("pbt_elo"), np.random.default_rng(0)
    copied = {
        name: {kind.period_end(population, population.players[name], 10, rng).exploit for _ in range(60)}
        for name in "abcd"
    }
    assert copied == {"a": {None, "c"}, "b": {None, "c"}, "c": {None}, "d": {"a", "b", "c"}}


def test_pbt_with_one_player_goes_on_alone(population: LeagueState) -> None:
    state = league()
    add(state, "only", "pbt_elo")
    assert play(state, "only", "pbt_elo") == {"only": 1.0}
    assert kind_of("pbt_elo").period_end(state, state.players["only"], 10, np.random.default_rng(0)).exploit is None


def test_pbt_psro_copies_who_adds_most_to_the_league() -> None:
    state = league()
    for name in ("a", "b", "c"):
        add(state, name, "pbt_psro")
    add(state, "a@1", "pbt_psro")
    set_win_rate(state, "a", "b", 0.9)
    set_win_rate(state, "a", "a@1", 0.8)
    set_win_rate(state, "c", "a", 0.9)
    set_win_rate(state, "c", "b", 0.6)
    kind, rng = kind_of("pbt_psro"), np.random.default_rng(0)
    decisions = {name: kind.period_end(state, state.players[name], 10, rng) for name in "abc"}
    # a adds .8 + .6, c adds .8 + .2, b adds nothing.
    assert {name: decision.exploit for name, decision in decisions.items()} == {"a": None, "b": "a", "c": None}
    assert decisions["b"].snapshot and "adds 0.000" in decisions["b"].reason
