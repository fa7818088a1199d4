"""Compiled steps of games on a tree equal numpy's and OpenSpiel's, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_connect_four import same

from envs.compiled_tree import COMPILED
from envs.game_tree import TreeVectorEnv
from envs.games.openspiel_games import StateVectorEnv, load, make_two_player
from envs.two_player.chance import Chance
from envs.two_player.vector_env import TwoPlayerVectorEnv

GAMES: list[tuple[str, dict[str, Any]]] = [
    ("kuhn_poker", {}),
    ("leduc_poker", {}),
    ("liars_dice", {"dice_sides": 4}),
    ("goofspiel", {"num_cards": 3, "imp_info": True}),
]


def compiled(name: str, games: int, **parameters: Any) -> TreeVectorEnv:
    if COMPILED.library() is None:
        pytest.skip("no C compiler")
    made = make_two_player(name, games, 7, **parameters)
    assert isinstance(made, TreeVectorEnv) and made._compiled is not None
    return made


def play_both(one: TreeVectorEnv, other: TwoPlayerVectorEnv, steps: int) -> None:
    chance = np.random.default_rng(1)
    turn, expected = one.reset(), other.reset()
    for _ in range(steps):
        same(turn, expected)
        action = (chance.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)
        turn, expected = one.step(action), other.step(action)
    same(turn, expected)
    assert one.chance is not None and other.chance is not None
    np.testing.assert_array_equal(one.chance.seeds, other.chance.seeds)
    assert one.history(3) == other.history(3)
    ended, wanted = one.pop_finished(), other.pop_finished()
    assert len(ended.index) > one.num_envs
    for name in ("index", "returns", "length"):
        np.testing.assert_array_equal(getattr(ended, name), getattr(wanted, name))


@pytest.mark.parametrize(("name", "parameters"), GAMES, ids=str)
def test_a_hundred_thousand_random_steps_equal_numpys(
    name: str, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compiled(name, 1000, **parameters)
    monkeypatch.setattr(COMPILED, "_found", (None, "none"))
    other = make_two_player(name, 1000, 7, **parameters)
    assert isinstance(other, TreeVectorEnv) and other._compiled is None
    play_both(one, other, 100)


@pytest.mark.parametrize(("name", "parameters"), GAMES, ids=str)
def test_random_steps_equal_openspiels(name: str, parameters: dict[str, Any]) -> None:
    one = compiled(name, 20, **parameters)
    other = StateVectorEnv(load(name, **parameters), name, 20, 7)
    other.chance = other._chance = Chance(20, 7)  # a new one: the constructor has drawn from its own
    play_both(one, other, 100)


def test_a_game_repeats_from_its_seed() -> None:
    games = compiled("leduc_poker", 4)
    games.reset()
    for _ in range(20):
        games.step(np.ones(4, np.int32))  # calls, which are always legal
    seeds = games.chance.seeds.copy()
    turn = games.reset(seeds)
    again = make_two_player("leduc_poker", 4, 8).reset(seeds)
    same(turn, again)
