"""league.empirical_game.mixture: one mixture for the score and for the players that train against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.league_in_memory import add, league

from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import MixtureSettings, mixture_of
from league.empirical_game.returns import Returns
from league.matchmaking import choose, distribution, kind_of, played, seat_of
from league.state.league_state import LeagueState

GAMES = 4096


def nearly_equal(players: int) -> LeagueState:
    """Return a league of frozen players with mean returns of 0.2 +- 0.1 in seat 0, measured with an error of 0.016."""
    rng = np.random.default_rng(3)
    state = league()
    for name in ("main", *(f"main@{version}" for version in range(players))):
        add(state, name, "psro")
    state.empirical_game.settings = MixtureSettings(1000, 0.05, 1.0, 0.25, 5e-5)
    for first in range(1, players + 1):
        for second in range(1, players + 1):
            mean = 0.2 + rng.normal(0.0, 0.1) + rng.normal(0.0, 0.016)
            state.empirical_game.add(first, second, GAMES, mean * GAMES, GAMES)
    return state


def test_psro_players_meet_in_each_seat_the_mixture_of_the_score() -> None:
    state = nearly_equal(20)
    me, kind, slots = state.players["main"], kind_of("psro"), state.roster.historical
    scored = mixture_of(state.empirical_game, slots, state.empirical_game.settings).shares
    by_seat = np.zeros((2, state.roster.slots))
    for branch in kind.branches(state, me):
        if branch.probability:
            seat, candidates = seat_of(branch.name), branch.candidates()
            assert seat is not None and branch.probability == 0.5
            by_seat[seat, candidates.slots] += candidates.probabilities
    np.testing.assert_array_equal(by_seat[:, slots], scored)
    assert np.abs(scored[0] - scored[1]).sum() / 2.0 > 0.1, "the mixtures of the two seats differ"
    np.testing.assert_allclose(distribution(kind, state, me)[slots], scored.mean(axis=0))

    rng, met = np.random.default_rng(1), np.zeros((2, state.roster.slots))
    for _ in range(2000):
        choice = choose(kind, state, me, rng)
        met[seat_of(choice.branch), choice.opponent.slot] += 1
    expected = 1000.0 * scored
    assert (np.abs(met[:, slots] - expected) <= 4.5 * np.sqrt(expected) + 1e-9).all()


def test_before_any_game_the_newest_is_the_mixture_and_all_are_undecided() -> None:
    found = mixture_of(Returns(), np.arange(3), MixtureSettings())
    np.testing.assert_array_equal(found.shares, [[0.0, 0.0, 1.0]] * 2)
    assert found.undecided.tolist() == [0, 1, 2] and found.wanted == [(2, 2)]
    without = mixture_of(Returns(), np.arange(3), MixtureSettings(exploiters=False), np.array([True, True, False]))
    np.testing.assert_array_equal(without.shares, [[0.0, 1.0, 0.0]] * 2)


def test_nearly_equal_players_are_averaged_at_a_least_temperature() -> None:
    returns, players = Returns(), np.arange(5)
    strength = np.array([0.0, 0.01, 0.02, 0.01, -3.0])  # the last one loses to all
    for one in players:
        for other in players:
            returns.add(int(one), int(other), GAMES, (strength[one] - strength[other]) * GAMES, GAMES)
    sharp = mixture_of(returns, players, MixtureSettings()).shares
    np.testing.assert_allclose(sharp, [[0.0, 0.0, 1.0, 0.0, 0.0]] * 2, atol=1e-9)
    soft = mixture_of(returns, players, MixtureSettings(least_temperature=0.02))
    weights = np.exp(strength[:4] / 0.02)
    np.testing.assert_allclose(soft.shares[:, :4], [weights / weights.sum()] * 2, atol=1e-5)
    assert soft.members.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("known", "shares"),
    [
        (0, [0.0] * 21 + [1 / 3] * 3),
        (21, [0.0] * 21 + [1 / 3] * 3),
        (23, [2 / 69] * 23 + [1 / 3]),
        (24, [1 / 24] * 24),
    ],
)
def test_players_of_the_newest_eighth_have_a_share_before_they_are_known(known: int, shares: list[float]) -> None:
    returns, players = Returns(), np.arange(24)  # all alike
    for one, other in np.ndindex(known, known):
        returns.add(one, other, GAMES, 0.0, GAMES)
    found = mixture_of(returns, players, MixtureSettings(least_temperature=0.02))
    np.testing.assert_allclose(found.shares, [shares] * 2, atol=1e-6)
    newest = 23 if known == 0 else None
    assert not mixture_of(returns, players, MixtureSettings()).shares[:, known:newest].any(), "Nash leaves them out"


@pytest.mark.parametrize("temperature", [0.0, 0.02])
def test_a_mixture_plays_no_exploiter_but_withstands_it(temperature: float) -> None:
    # The main agent has rock, paper and scissors; an exploiter gains 4 from rock.
    state = league()
    add(state, "main", "main_agent"), add(state, "hunter", "main_exploiter")
    slots = [add(state, f"main@{version}", "main_agent").slot for version in (1, 2, 3)]
    slots.append(add(state, "hunter@1", "main_exploiter").slot)
    gains = np.zeros((4, 4))
    gains[:3, :3] = [[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]
    gains[3], gains[:, 3] = [4.0, 0.0, 0.0, 0.0], [-4.0, 0.0, 0.0, 0.0]
    for (first, second), mean in np.ndenumerate(gains):
        state.empirical_game.add(slots[first], slots[second], GAMES, mean * GAMES, mean**2 * GAMES)
    frozen = np.array(slots)
    mine = played(state.roster, frozen)
    assert mine.tolist() == [True, True, True, False]
    state.empirical_game.settings = MixtureSettings(least_temperature=temperature, exploiters=False)
    shares = state.empirical_game.mixture(frozen, mine).shares
    np.testing.assert_allclose(shares, [[1 / 15, 1 / 3, 3 / 5, 0.0]] * 2, atol=1e-9 if temperature == 0.0 else 0.03)
    assert played(state.roster, frozen[3:]).tolist() == [True], "exploiters are played if there are no others"
    state.empirical_game.settings = MixtureSettings(least_temperature=temperature)
    assert state.empirical_game.mixture(frozen, mine).shares[:, 3].min() > 0.1, "by default exploiters are played"


def test_an_exploiter_frozen_by_hand_counts_as_an_exploiter_too() -> None:
    state = league()
    for name, kind in (("main", "main_agent"), ("main@1", "main_agent"), ("hunter", "main_exploiter")):
        add(state, name, kind, frozen=name == "hunter")
    assert played(state.roster, state.roster.historical).tolist() == [True, False]


@pytest.mark.parametrize(("branch", "seat"), [("meta_in_seat_0", 0), ("meta_in_seat_1", 1), ("meta", None)])
def test_a_branchs_name_tells_the_opponents_seat(branch: str, seat: int | None) -> None:
    assert seat_of(branch) == seat


def test_the_least_exploitable_mixture_is_taken_as_found() -> None:
    returns, slots = Returns(), np.array([2, 5, 7, 9])
    settings = MixtureSettings(source="exact", against="best_responses")
    assert mixture_of(returns, slots, settings).shares[:, 3].tolist() == [1.0, 1.0], "until found, the newest"
    shares = np.array([[0.25, 0.75, 0.0], [0.5, 0.0, 0.5]])
    returns.found(LeastExploitable(np.array([7, 2, 5]), shares, 0.1))
    found = mixture_of(returns, slots, settings)
    np.testing.assert_array_equal(found.shares, [[0.75, 0.0, 0.25, 0.0], [0.0, 0.5, 0.5, 0.0]])
    assert (found.members.tolist(), found.undecided.tolist(), found.wanted) == ([0, 1, 2], [3], [])
    assert mixture_of(returns, slots, MixtureSettings(source="exact")).shares[0, 3] == 1.0, "not with other settings"
    without = mixture_of(returns, slots, replace(settings, exploiters=False), np.array([True, False, True, True]))
    np.testing.assert_array_equal(without.shares, [[0.75, 0.0, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert returns.version == 1
