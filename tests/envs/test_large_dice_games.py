"""Exploitability of liar's dice and goofspiel by their structure equals that of the game tree."""

from __future__ import annotations

import numpy as np
import pytest
from support.drawn_policies import drawn

from envs import exploitability
from envs.large.goofspiel import Goofspiel
from envs.large.liars_dice import LiarsDice


@pytest.mark.parametrize(("dice", "sides"), [(1, 2), (1, 3), (2, 2)])
def test_exploitability_in_liars_dice_equals_that_of_the_game_tree(dice: int, sides: int) -> None:
    game = LiarsDice("liars_dice", dice, sides)
    form = exploitability.load("openspiel:liars_dice", numdice=dice, dice_sides=sides)
    assert game.states == len(form.owner)
    shares = np.array([[0.2, 0.8, 0.0], [0.5, 0.0, 0.5]])
    policies = [drawn(seed) for seed in range(3)]
    tables = [exploitability.tabulate(form, policy) for policy in policies]
    known = exploitability.of(form, exploitability.mixture(form, tables, shares))
    assert game.exploitability(policies, shares) == pytest.approx(known, abs=1e-12)
    for policy, table in zip(policies, tables, strict=True):
        assert game.exploitability([policy]) == pytest.approx(exploitability.of(form, table), abs=1e-12)


@pytest.mark.parametrize("returns", ["win_loss", "point_difference"])
def test_exploitability_in_goofspiel_equals_that_of_the_game_tree(returns: str) -> None:
    game = Goofspiel("goofspiel", 3, returns == "point_difference")
    form = exploitability.load("openspiel:goofspiel", num_cards=3, imp_info=True, returns_type=returns)
    assert game.states == len(form.owner)
    table = exploitability.tabulate(form, drawn(2))
    assert game.exploitability([drawn(2)]) == pytest.approx(exploitability.of(form, table), abs=1e-12)


@pytest.mark.parametrize(
    ("env_id", "states"),
    [
        ("openspiel:liars_dice?numdice=2&dice_sides=5", 15_728_640),
        ("openspiel:goofspiel?num_cards=6&imp_info=true", 23_050_572),
    ],
)
def test_large_games_are_recognized_with_their_number_of_states(env_id: str, states: int) -> None:
    game = exploitability.large(env_id)
    assert game is not None and game.states == states
    assert game.seconds(2) - game.seconds(1) == pytest.approx(states / 1e6)
