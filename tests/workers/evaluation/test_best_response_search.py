"""The least exploitable mixture of some players, compared with a linear program over the whole game."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

import envs
from agents import build_policy
from envs import exploitability
from envs.sequence_form import SequenceForm
from league.empirical_game.least_exploitable import members_gain
from league.empirical_game.mixture import BEST_RESPONSES
from league.empirical_game.returns import Returns
from workers.config.league import LeagueConfig, PlayerConfig
from workers.evaluation.best_response_search import CUTS, BestResponseSearch
from workers.evaluation.by_settings import evaluator_of
from workers.evaluation.cells import Cell
from workers.evaluation.scores import table

KUHN = exploitability.load("openspiel:kuhn_poker")
SMALL = {"name": "mlp", "hidden_sizes": [8]}


def random_policies(form: SequenceForm, count: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = [rng.random(form.action_mask.shape) ** 4 * form.action_mask for _ in range(count)]
    return [one / one.sum(axis=1, keepdims=True) for one in drawn]


def found(form: SequenceForm, policies: list[np.ndarray], steps: int = 80) -> BestResponseSearch:
    search = BestResponseSearch(form)
    search.add({slot: form.plans(policy) for slot, policy in enumerate(policies)})
    for _ in range(steps):
        search.step()
    return search


def every_plan(form: SequenceForm, seat: int) -> Iterator[np.ndarray]:
    """Yield the plans of all pure strategies of a seat."""
    states = form.states[seat]
    legal = [np.flatnonzero(form.action_mask[state]) for state in states]
    for actions in product(*legal):
        policy = exploitability.uniform(form).copy()
        for state, action in zip(states, actions, strict=True):
            policy[state] = 0.0
            policy[state, action] = 1.0
        yield form.plans(policy)[seat]


def least_by_enumeration(form: SequenceForm, policies: list[np.ndarray]) -> float:
    """Return the least exploitability of any mixture, against all pure strategies of the other seat."""
    whole = 0.0
    for seat in (0, 1):
        plans = np.stack([form.plans(policy)[seat] for policy in policies])
        losses = np.stack([-(plans @ form.worth(seat, reply)) for reply in every_plan(form, 1 - seat)])
        n = len(policies)
        solved = linprog(
            [0.0] * n + [1.0],
            A_ub=np.column_stack([losses, -np.ones(len(losses))]),
            b_ub=np.zeros(len(losses)),
            A_eq=[[1.0] * n + [0.0]],
            b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)],
        )
        whole += solved.fun
    return whole / 2.0


@pytest.mark.parametrize("seed", range(4))
def test_no_mixture_of_the_players_is_exploited_less(seed: int) -> None:
    policies = random_policies(KUHN, 6, seed)
    search = found(KUHN, policies)
    best = search.best
    assert search.gap == pytest.approx(0.0, abs=1e-6)
    assert best.exploitability == pytest.approx(least_by_enumeration(KUHN, policies), abs=1e-6)
    mixed = exploitability.of(KUHN, exploitability.mixture(KUHN, policies, best.shares))
    assert best.exploitability == pytest.approx(mixed, abs=1e-9)
    assert best.exploitability < min(exploitability.of(KUHN, policy) for policy in policies)


def test_pure_strategies_of_rock_paper_scissors_make_the_equilibrium() -> None:
    form = exploitability.load("matrix:rps")
    pure = [np.tile(np.eye(3)[action], (len(form.action_mask), 1)) for action in range(3)]
    best = found(form, pure).best
    assert best.exploitability == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_allclose(best.shares, 1 / 3, atol=1e-5)


def test_players_that_join_later_count_like_the_first() -> None:
    policies = random_policies(KUHN, 8, 5)
    search = found(KUHN, policies[:4], 20)
    before = search.best.exploitability
    for slot, policy in enumerate(policies[4:], 4):
        search.add({slot: KUHN.plans(policy)})
    for _ in range(80):
        search.step()
    assert search.best.exploitability == pytest.approx(found(KUHN, policies).best.exploitability, abs=1e-6)
    assert search.best.exploitability <= before and search.best.slots.tolist() == list(range(8))


def test_players_without_a_share_can_be_left_out() -> None:
    policies = random_policies(KUHN, 8, 6)
    search = found(KUHN, policies)
    best = search.best
    held = np.flatnonzero(best.shares.max(axis=0)).tolist()
    search.keep(held[:1])
    assert search.slots == held and len(held) < 8
    assert search.best.exploitability == best.exploitability
    search.step()
    np.testing.assert_allclose(search.best.of(best.slots).sum(axis=1), 1.0)


def test_few_responses_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.evaluation.best_response_search.CUTS", 12)
    policies = random_policies(KUHN, 6, 1)
    search = found(KUHN, policies)
    assert all(len(seat._responses) <= 13 < CUTS for seat in search._seats)
    assert search.best.exploitability == pytest.approx(least_by_enumeration(KUHN, policies), abs=1e-6)


def test_an_evaluator_short_of_memory_searches_among_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    config, slots = league(), np.arange(8)
    games = envs.make_two_player(config.env, 2, 1)
    spaces = games.single_observation_space, games.single_action_space
    policies = [build_policy(SMALL, *spaces, seed) for seed in range(8)]
    evaluator = evaluator_of(config, games, returns := Returns(), policies.__getitem__, 1)
    monkeypatch.setattr("workers.evaluation.exact_cells.PLANS", 2 * sum(KUHN.num_sequences))
    for count in range(1, 9):
        while evaluator.step(slots[:count]):
            pass
    best = returns.least_exploitable
    assert best is not None and {5, 6, 7} <= {*best.slots.tolist()}
    assert len(best.slots) <= 3 + np.count_nonzero(best.shares.max(axis=0))


class OnlyOne:
    """Claims of an evaluator that leaves the search for the mixture to another one."""

    def claim(self, cells: list[Cell]) -> Cell | None:
        return next((cell for cell in cells if cell != (-1, -1)), None)


def league() -> LeagueConfig:
    return LeagueConfig(
        env="openspiel:kuhn_poker",
        players={"main": PlayerConfig("self_play")},
        network=SMALL,
        evaluation="exact",
        mixture_against=BEST_RESPONSES,
    )


def test_an_evaluator_finds_the_mixture_beside_the_cells() -> None:
    config, slots = league(), np.arange(6)
    games = envs.make_two_player(config.env, 2, 1)
    policies = [
        build_policy(SMALL, games.single_observation_space, games.single_action_space, seed) for seed in range(6)
    ]
    returns = Returns()
    evaluator = evaluator_of(config, games, returns, policies.__getitem__, 1)
    while evaluator.step(slots):
        pass
    assert len(returns.cells()) == 36, "all pairs are computed too"
    best = returns.least_exploitable
    assert best is not None and sorted(best.slots) == slots.tolist()
    shares = evaluator.mixture(slots)
    np.testing.assert_array_equal(shares, best.of(slots))
    gain = evaluator.gain_within(slots, shares)
    assert gain == (best.exploitability, best.exploitability)
    tables = [table(KUHN, policy) for policy in policies]
    exact = exploitability.of(KUHN, exploitability.mixture(KUHN, tables, shares))
    assert members_gain({"mixture": exact, "gain_within": gain}) is None, "it is no member's gain"
    assert not evaluator.step(slots), "nothing is left to do"

    second = evaluator_of(config, games, returns, policies.__getitem__, 2)
    assert not second.step(slots), "a second evaluator has nothing to do, either"
    returns.least_exploitable = None  # as after Redis came back empty
    assert evaluator.step(slots) and returns.least_exploitable is not None
    while evaluator.step(slots):
        pass
    left = np.delete(slots, int(best.shares.sum(axis=0).argmax()))  # without the most played player
    while evaluator.step(left):
        pass
    without = returns.least_exploitable
    assert without is not None and sorted(without.slots) == left.tolist()
    assert without.exploitability >= best.exploitability

    beside = evaluator_of(config, games, alone := Returns(), policies.__getitem__, 3, claims=OnlyOne())
    while beside.step(slots):
        pass
    assert len(alone.cells()) == 36 and alone.least_exploitable is None
