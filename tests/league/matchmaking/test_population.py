"""league.matchmaking.psro and pbt: mixtures of the evaluators' empirical game, and population-based training."""

from __future__ import annotations

import numpy as np
import pytest
from support.league_in_memory import add, league, named, set_return, set_win_rate

from league.matchmaking import distribution, kind_of
from league.rules.ratings import expected_score
from league.state.league_state import LeagueState


def rock_paper_scissors(kind: str) -> LeagueState:
    """Return a league of three snapshots that form a cycle by evaluators' games; they have had no matches."""
    state = league()
    add(state, "main", kind)
    for version in (1, 2, 3):
        add(state, f"main@{version}", kind)
    for one, other in ((1, 2), (2, 3), (3, 1)):
        set_return(state, f"main@{one}", f"main@{other}", -2.0)
    return state


@pytest.fixture
def population() -> LeagueState:
    state = league()
    for name, elo in (("a", 1200.0), ("b", 1210.0), ("c", 1500.0), ("d", 900.0)):
        add(state, name, "pbt_elo", elo=elo)
    return state


def play(state: LeagueState, name: str, kind: str, **config: object) -> dict[str, float]:
    return named(state, distribution(kind_of(kind, config), state, state.players[name]))


def frozen(*shares: float) -> dict[str, float]:
    return {f"main@{version}": pytest.approx(share) for version, share in enumerate(shares, 1) if share}


@pytest.mark.parametrize("kind", ["psro", "pbt_psro"])
def test_psro_plays_the_nash_mixture_of_history(kind: str) -> None:
    state = rock_paper_scissors(kind)
    assert play(state, "main", kind) == frozen(1 / 3, 1 / 3, 1 / 3)


@pytest.mark.parametrize("solver", ["nash", "alpha_rank", "replicator"])
def test_psro_leaves_out_dominated_players(solver: str) -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    for version in (1, 2, 3):
        set_return(state, "main@4", f"main@{version}", -2.0)
    assert play(state, "main", "psro", solver=solver).get("main@4", 0.0) < 0.01


@pytest.mark.parametrize(
    ("solver", "shares"),
    [("uniform", (1 / 3, 1 / 3, 1 / 3)), ("alpha_rank", (1 / 2, 1 / 2, 0.0)), ("replicator", (1 / 2, 1 / 2, 0.0))],
)
def test_other_solvers_use_all_players_that_met_not_only_nashs_support(solver: str, shares: tuple[float, ...]) -> None:
    state = league()
    for name in ("main", "main@1", "main@2", "main@3"):
        add(state, name, "psro")
    set_return(state, "main@1", "main@2", 0.0)  # equal players, of which Nash's mixture needs one
    for version in (1, 2):
        set_return(state, f"main@{version}", "main@3", 1.0)
    assert play(state, "main", "psro") == frozen(1.0)
    found = play(state, "main", "psro", solver=solver)
    assert [found.get(f"main@{version}", 0.0) for version in (1, 2, 3)] == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize("solver", ["alpha_rank", "replicator"])
def test_other_solvers_give_a_player_that_has_not_met_the_rest_a_uniform_share(solver: str) -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    set_return(state, "main@4", "main@1", -2.0)
    found = play(state, "main", "psro", solver=solver)
    assert found == {f"main@{version}": pytest.approx(1 / 4, abs=0.01) for version in (1, 2, 3, 4)}


def test_psro_uses_mean_returns_and_not_win_rates() -> None:
    # main@1 wins nine small pots of ten from main@2, and loses more in the tenth.
    state = league()
    for name in ("main", "main@1", "main@2"):
        add(state, name, "psro")
    set_win_rate(state, "main@1", "main@2", 0.9)
    set_return(state, "main@1", "main@2", -0.4)
    assert play(state, "main", "psro") == frozen(0.0, 1.0)


def test_matches_of_learning_players_do_not_change_psros_mixture() -> None:
    state = rock_paper_scissors("psro")
    for version, rate in ((1, 0.9), (2, 0.1), (3, 0.5)):
        set_win_rate(state, "main", f"main@{version}", rate)
    assert play(state, "main", "psro") == frozen(1 / 3, 1 / 3, 1 / 3)


@pytest.mark.parametrize("solver", ["nash", "alpha_rank", "replicator", "uniform"])
def test_psro_is_uniform_before_any_evaluation_game(solver: str) -> None:
    state = league()
    for name in ("main", "main@1", "main@2", "main@3"):
        add(state, name, "psro")
    assert play(state, "main", "psro", solver=solver) == frozen(1 / 3, 1 / 3, 1 / 3)


def test_a_newcomer_has_a_uniform_share_until_it_has_met_the_support() -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    assert play(state, "main", "psro") == frozen(1 / 4, 1 / 4, 1 / 4, 1 / 4)
    set_return(state, "main@4", "main@1", 2.0)
    set_return(state, "main@4", "main@2", 2.0)
    assert play(state, "main", "psro") == frozen(1 / 4, 1 / 4, 1 / 4, 1 / 4)
    set_return(state, "main@4", "main@3", 2.0)
    assert play(state, "main", "psro", refresh=1) == frozen(0.0, 0.0, 0.0, 1.0)


def test_psro_may_keep_a_share_for_itself_and_for_everyone() -> None:
    state = rock_paper_scissors("psro")
    add(state, "main@4", "psro")
    for version in (1, 2, 3):
        set_return(state, "main@4", f"main@{version}", -2.0)
    found = play(state, "main", "psro", self_share=0.2, uniform_share=0.4, shares="matches")
    assert found["main"] == pytest.approx(0.2) and found["main@4"] == pytest.approx(0.1)


def test_psro_solves_again_once_the_evaluators_added_enough_or_someone_joined() -> None:
    state = rock_paper_scissors("psro")
    before = play(state, "main", "psro", refresh=12)
    set_return(state, "main@1", "main@2", 8.0)  # four additions each
    set_return(state, "main@1", "main@3", 8.0)
    assert play(state, "main", "psro", refresh=12) == before
    set_return(state, "main@1", "main@3", 8.0)
    assert play(state, "main", "psro", refresh=12) == frozen(1.0)
    add(state, "main@4", "psro")
    for version in (1, 2, 3):
        set_return(state, "main@4", f"main@{version}", 2.0)
    assert play(state, "main", "psro", refresh=10**6) == frozen(0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("solver", ["alpha_rank", "replicator"])
def test_solvers_do_not_depend_on_the_scale_of_returns(solver: str) -> None:
    small, large = rock_paper_scissors("psro"), rock_paper_scissors("psro")
    set_return(small, "main@1", "main@2", -1.0)
    for one, other, edge in ((1, 2, -1.0), (1, 2, -2.0), (2, 3, -2.0), (3, 1, -2.0)):
        set_return(large, f"main@{one}", f"main@{other}", 1000 * edge, 10**6)
    found, scaled = (play(state, "main", "psro", solver=solver) for state in (small, large))
    assert found == pytest.approx(scaled, abs=0.01)


def test_pbt_prefers_opponents_of_similar_elo(population: LeagueState) -> None:
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


def test_pbt_psro_copies_the_player_that_adds_most_to_the_league() -> None:
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
    # Between a and b, a gains .8 from b, and neither gains from c. Between b and c, c gains .8 from a and .2 from b.
    # Between a and c, a gains .8 from b, c .8 from a and .2 from b. a@1 does not count: only a has met it.
    assert {name: decision.exploit for name, decision in decisions.items()} == {"a": None, "b": "c", "c": None}
    assert decisions["b"].snapshot and "adds 0.000" in decisions["b"].reason


def test_a_pbt_psro_player_that_met_few_since_it_copied_does_not_copy_again() -> None:
    state, exploits = league(), 0
    for name in ("main", "copy"):
        add(state, name, "pbt_psro")
    for version in range(40):
        add(state, f"main@{version}", "pbt_psro")
    rng, kind = np.random.default_rng(2), kind_of("pbt_psro")
    for trial in range(50):
        for version in range(40):
            state.payoff.cells[1, 2 + version] = state.payoff.cells[2 + version, 1] = 0.0
            set_win_rate(state, "main", f"main@{version}", rng.normal(0.7, 0.05))
        for version in range(trial % 9):  # the copy is as strong, and its record was cleared when it copied
            set_win_rate(state, "copy", f"main@{version}", rng.normal(0.7, 0.05))
        exploits += kind.period_end(state, state.players["copy"], 10, rng).exploit is not None
    assert exploits <= 1
    for version in range(8):
        set_win_rate(state, "copy", f"main@{version}", 0.55)
    assert kind.period_end(state, state.players["copy"], 10, rng).exploit == "main"
