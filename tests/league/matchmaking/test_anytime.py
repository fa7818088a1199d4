"""league.matchmaking.anytime: a mixture of frozen players that learns against the answer that trains against it."""

from __future__ import annotations

import numpy as np
import pytest
from support.league_in_memory import add, league, named

from league.empirical_game.multiplicative_weights import multiplicative_weights
from league.matchmaking import anytime, distribution, kind_of, seat_of
from league.rules.plateau import Look
from league.state.league_state import LeagueState
from warren.errors import ConfigurationError


def test_against_best_responses_the_average_mixture_becomes_hard_to_exploit() -> None:
    payoff = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])  # its equilibrium is (1, 2, 1) / 4
    gains = np.zeros((0, 3))
    for _ in range(500):  # each round the members earn their payoff against the best response to the newest mixture
        newest = multiplicative_weights(gains, 0.1)[-1]
        gains = np.vstack([gains, payoff[:, (newest @ payoff).argmin()]])
    average = multiplicative_weights(gains, 0.1).mean(axis=0)
    assert -(average @ payoff).min() < 0.1 < -(np.full(3, 1 / 3) @ payoff).min()
    np.testing.assert_allclose(average, [0.25, 0.5, 0.25], atol=0.06)


def begun() -> LeagueState:
    state = league()
    add(state, "answer", "anytime_psro")
    for number in (1, 2):
        add(state, f"answer@{number}", "anytime_psro")
    return state


def look(steps: int, *members: tuple[int, float | None, float | None], generation: int = 0) -> Look:
    return Look(generation, steps, 4096, 0.0, -1.0, 1.0, members)


def test_each_seats_mixture_moves_by_what_members_win_from_the_answer() -> None:
    state = begun()
    kind, me = kind_of("anytime_psro", {"rate": 0.5}), state.players["answer"]
    assert named(state, distribution(kind, state, me)) == {"answer@1": 0.5, "answer@2": 0.5}
    state.looked["answer"] = [
        look(10, (1, -9.0, -9.0), (2, 9.0, 9.0), generation=1),  # of weights of another generation
        look(10, (1, 1.0, 0.0), (2, 0.0, None)),
        look(20, (1, 1.0, 2.0), (2, -1.0, 0.0)),
    ]
    found = {seat_of(branch.name): branch.candidates() for branch in kind.branches(state, me)}
    for seat, earned in ((0, [-2.0, 1.0]), (1, [-2.0, 0.0])):
        weights = np.exp(0.5 * np.array(earned))
        np.testing.assert_allclose(found[seat].probabilities, weights / weights.sum())
    add(state, "answer@3", "anytime_psro")
    newest = named(state, distribution(kind, state, me))
    assert newest["answer@3"] > newest["answer@1"], "no look has measured the newcomer, so it has lost nothing"


def test_a_mixture_is_computed_anew_only_after_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    state, computed = begun(), []
    weights = anytime.multiplicative_weights
    monkeypatch.setattr(anytime, "multiplicative_weights", lambda *given: computed.append(1) or weights(*given))
    kind, me = kind_of("anytime_psro", {"rate": 0.5}), state.players["answer"]
    state.looked["answer"] = [look(10, (1, 1.0, 0.0), (2, 0.0, None))]
    first = [distribution(kind, state, me) for _ in range(3)]
    assert len(computed) == 2 and (first[0] == first[2]).all()
    state.looked["answer"].append(look(20, (1, 1.0, 2.0), (2, -1.0, 0.0)))
    assert (distribution(kind, state, me) != first[0]).any() and len(computed) == 4


def test_an_answer_meets_its_strategy_and_ends_with_its_budget() -> None:
    state = begun()
    add(state, "strategy", "best_response")
    kind = kind_of("anytime_psro", {"budget": 500, "strategy": "strategy", "strategy_share": 0.25})
    me, rng = state.players["answer"], np.random.default_rng(1)
    met = named(state, distribution(kind, state, me))
    assert met == pytest.approx({"answer@1": 0.375, "answer@2": 0.375, "strategy": 0.25})
    assert not kind.period_end(state, me, 499, rng).snapshot
    ended = kind.period_end(state, me, 500, rng)
    assert ended.snapshot and ended.reset
    target = kind.to_beat(state)
    assert target is not None and kind.wants_looks and target.by_member
    assert target.slots.tolist() == [1, 2] and (target.shares == 0.5).all()


def test_wrong_options_are_all_named() -> None:
    with pytest.raises(ConfigurationError) as refused:
        kind_of("anytime_psro", {"rate": 0.0, "look_games": 1, "budget": 0, "strategy_share": 2.0})
    assert [problem.split("=")[0] for problem in refused.value.problems] == [
        *("anytime_psro: strategy_share", "anytime_psro: rate", "anytime_psro: look_games", "anytime_psro: budget"),
    ]
