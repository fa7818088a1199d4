"""Exploitability of phantom games by their structure equals that of the game tree; states equal OpenSpiel's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyspiel
import pytest
from support.drawn_policies import drawn

from envs import exploitability
from envs.game_tree import TERMINAL
from envs.games.openspiel_tree import OpenSpielRules
from envs.large.phantom import PhantomGame, dark_hex
from envs.large.phantom_histories import DIGIT, Level, PhantomRules
from envs.rules import Rules, write_out
from envs.sequence_form import SequenceForm
from warren.errors import ConfigurationError


class Shown(OpenSpielRules):
    """Information sets by observation alone: OpenSpiel's strings of dark hex also count the opponent's tries."""

    def information_set(self, state: Any) -> None:
        return None


def tree_of(name: str) -> SequenceForm:
    return SequenceForm.from_tree(write_out(name, Shown(pyspiel.load_game(name))))


@pytest.fixture(scope="module", params=["cdh", "adh"])
def two_by_two(request: pytest.FixtureRequest) -> tuple[PhantomGame, SequenceForm]:
    tree = tree_of(f"dark_hex(board_size=2,gameversion={request.param})")
    return dark_hex("dark_hex", 2, 2, abrupt=request.param == "adh"), tree


def test_dark_hex_has_as_many_states_as_its_game_tree(two_by_two: Any) -> None:
    game, form = two_by_two
    assert game.states == len(form.owner)


@pytest.mark.parametrize("seed", range(5))
def test_exploitability_in_dark_hex_equals_that_of_the_game_tree(two_by_two: Any, seed: int) -> None:
    game, form = two_by_two
    table = exploitability.tabulate(form, drawn(seed))
    assert game.exploitability([drawn(seed)]) == pytest.approx(exploitability.of(form, table), abs=1e-12)


def test_exploitability_of_a_mixture_by_seat_equals_that_of_the_game_tree(two_by_two: Any) -> None:
    game, form = two_by_two
    shares = np.array([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5]])
    policies = [drawn(seed) for seed in range(3)]
    tables = [exploitability.tabulate(form, policy) for policy in policies]
    known = exploitability.of(form, exploitability.mixture(form, tables, shares))
    assert game.exploitability(policies, shares) == pytest.approx(known, abs=1e-12)


@pytest.mark.parametrize("name", ["phantom_ttt", "dark_hex", "phantom_ttt(gameversion=abrupt)"])
def test_observations_legal_actions_and_wins_equal_openspiels(name: str) -> None:
    game = exploitability.large(f"openspiel:{name}")
    assert isinstance(game, PhantomGame)
    generator = np.random.default_rng(3)
    for _ in range(60):
        state = pyspiel.load_game(name).new_initial_state()
        order, own, seen = [0, 0], [0, 0], [0, 0]
        tries = [0, 0]
        while not state.is_terminal():
            player = state.current_player()
            columns = [np.array([column[player]]) for column in (order, own, seen)]
            level = Level(tries[player], *columns, np.zeros(1, np.int32), np.zeros((1, 1, 1), np.int32))
            observation, action_mask = game.observe(player, level, slice(0, 1))
            np.testing.assert_array_equal(observation.ravel(), state.information_state_tensor(player))
            assert np.flatnonzero(action_mask[0]).tolist() == state.legal_actions()
            move = int(generator.choice(state.legal_actions()))
            order[player] |= move << (DIGIT * tries[player])
            tries[player] += 1
            taken = bool((own[1 - player] >> move) & 1)
            (seen if taken else own)[player] |= 1 << move
            state.apply_action(move)
        won = [bool(game.rules.wins[player][own[player]]) for player in range(2)]
        assert state.returns()[0] == won[0] - won[1]


class Row(Rules):
    """A phantom game on a row of cells: `length` adjacent stones win."""

    def __init__(self, cells: int, length: int, abrupt: bool) -> None:
        self.num_actions, self.length, self.abrupt = cells, length, abrupt

    def initial(self) -> Any:
        return 0, ((), ()), ((), ())  # the player to move, stones per player, tries per player

    def to_move(self, state: Any) -> int:
        player, stones, _ = state
        over = self.returns(state) or len(stones[0]) + len(stones[1]) == self.num_actions
        return TERMINAL if over else player

    def legal(self, state: Any) -> list[int]:
        return [cell for cell in range(self.num_actions) if cell not in state[2][state[0]]]

    def step(self, state: Any, action: int) -> Any:
        player, stones, tries = state
        mine = tries[player] + (action,)
        tries = (mine, tries[1]) if player == 0 else (tries[0], mine)
        if action in stones[1 - player]:
            return (1 - player if self.abrupt else player), stones, tries
        mine = stones[player] + (action,)
        return 1 - player, (mine, stones[1]) if player == 0 else (stones[0], mine), tries

    def returns(self, state: Any) -> float:
        rows = [set(range(first, first + self.length)) for first in range(self.num_actions - self.length + 1)]
        won = [any(row <= set(stones) for row in rows) for stones in state[1]]
        return float(won[0] - won[1])

    def observation(self, state: Any) -> np.ndarray:
        player, stones, tries = state
        shown = np.zeros((2 + self.num_actions, self.num_actions), np.float32)
        for number, cell in enumerate(tries[player]):
            shown[2 + number, cell] = 1.0
            shown[int(cell in stones[player]), cell] = 1.0
        return shown


def row_of(cells: int, length: int, abrupt: bool) -> PhantomGame:
    sets = np.arange(1 << cells)
    row = (1 << length) - 1
    won = np.any([sets & row << first == row << first for first in range(cells - length + 1)], axis=0)
    rules = PhantomRules(cells, np.stack([won, won]))
    return PhantomGame("row", rules, lambda own, seen, _: np.stack([seen, own], 1), (2 + cells, cells), abrupt)


@pytest.mark.parametrize("abrupt", [False, True])
@pytest.mark.parametrize(("cells", "length"), [(3, 2), (4, 2), (4, 3), (5, 3)])
def test_exploitability_of_row_games_equals_that_of_the_game_tree(cells: int, length: int, abrupt: bool) -> None:
    game = row_of(cells, length, abrupt)
    form = SequenceForm.from_tree(write_out("row", Row(cells, length, abrupt)))
    assert game.states == len(form.owner)
    table = exploitability.tabulate(form, drawn(5))
    assert game.exploitability([drawn(5)]) == pytest.approx(exploitability.of(form, table), abs=1e-12)


def test_an_invalid_policy_is_refused(two_by_two: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"must be probabilities that sum to 1 over the legal actions \[0 1 2 3\]"
    ):
        two_by_two[0].exploitability([lambda observation, action_mask: action_mask * 1.0])


def test_a_game_that_takes_more_memory_than_is_free_is_refused(two_by_two: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(two_by_two[0], "gib", 1e9)
    with pytest.raises(ConfigurationError, match=r"takes 1000000000.0 GiB of memory, .* are free"):
        two_by_two[0].exploitability([drawn(1)])


@pytest.mark.parametrize(
    "env_id",
    ["openspiel:kuhn_poker", "openspiel:connect_four", "openspiel:dark_hex?board_size=2", "matrix:rps",
     "openspiel:liars_dice", "openspiel:dark_hex?board_size=4", "openspiel:phantom_ttt?obstype=reveal-numturns"],
)  # fmt: skip
def test_other_games_are_not_among_the_large_ones(env_id: str) -> None:
    assert exploitability.large(env_id) is None
