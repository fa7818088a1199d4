"""league.empirical_game.earned: a mixture's loss without a player's snapshots, and the learning that it earns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from league.empirical_game.earned import Earned, losses
from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import BEST_RESPONSES
from league.empirical_game.returns import Returns

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_a_players_loss_is_that_of_the_best_mixture_without_its_snapshots() -> None:
    # Without scissors, 1/3 rock and 2/3 paper lose 1/3; without rock and paper, scissors alone lose 1.
    rps = ["main", "main", "hunter"]
    assert losses(RPS, rps, rps) == pytest.approx({"main": 1.0, "hunter": 1 / 3})
    twice = RPS[np.ix_([0, 1, 2, 2], [0, 1, 2, 2])]
    copied = ["main", "main", "main", "copy"]
    assert losses(twice, copied, copied) == pytest.approx({"main": 1.0, "copy": 0.0})
    by_hand = ["main", "main", None]
    assert losses(RPS, by_hand, by_hand) == pytest.approx({"main": 1.0}), "a player added by hand earns nothing"
    assert losses(RPS[[1]], ["main"], rps) == {"main": 0.0, "hunter": 0.0}, "paper alone gains nothing"
    ladder = np.sign(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    between = ["main", "hunter", "main"]
    assert losses(ladder, between, between) == {"main": 1.0, "hunter": 0.0}
    assert losses(ladder, ["main"] * 3, ["main"] * 3) == {"main": 1.0}


def test_an_exploiters_loss_is_how_much_more_an_unaware_mixture_loses_to_it() -> None:
    # Main has rock, paper and scissors; hunter's snapshot gains 4 from rock, and nothing from the others.
    gains = np.vstack([RPS, [4.0, 0.0, 0.0]])
    found = losses(gains, ["main", "main", "main", "hunter"], ["main"] * 3)
    # A mixture unaware of it plays thirds and loses 4/3 to it; an aware one plays (1/15, 1/3, 3/5) and loses 4/15.
    assert found == pytest.approx({"main": 4.0, "hunter": 4 / 3 - 4 / 15})


def played(matrix: np.ndarray) -> Returns:
    """Return 100 games of each cell, with `matrix` as their means."""
    returns = Returns()
    for (first, second), mean in np.ndenumerate(matrix):
        returns.add(first, second, 100, 100.0 * mean, 100.0)
    return returns


def test_shares_follow_the_losses_once_players_were_frozen() -> None:
    updates = {"main": 8.0, "hunter": 1.0, "other": 1.0}
    earned, returns, slots = Earned(updates, 0.5), played(RPS), np.arange(3)
    assert earned.shares == pytest.approx(updates)
    assert earned.follow(slots, ["main", "main", "hunter"], returns)
    shares = earned.shares
    assert sum(shares.values()) == pytest.approx(10.0)
    assert shares["main"] > 8.0 and shares["hunter"] / shares["other"] > 1.0 and shares["other"] < 1.0
    assert not earned.follow(slots, ["main", "main", "hunter"], returns)
    assert earned.shares == shares, "no player was frozen since"


def test_the_share_of_a_player_that_always_contributes_most_is_bounded() -> None:
    earned, returns = Earned({"main": 1.0, "hunter": 1.0}, 0.5), played(RPS)
    for joined in range(3, 60):
        # Hunter has scissors, main rock and paper; the rocks that join contribute nothing.
        slots = np.array([0, 1, 2] + [0] * (joined - 3))
        assert earned.follow(slots, ["main", "main", "hunter"] + ["main"] * (joined - 3), returns)
    shares = earned.shares
    assert shares["main"] == pytest.approx(0.5 + 1.0 / (1.0 + np.exp(-0.5 * 5.0 * (1.0 - 1 / 3))), abs=0.01)
    assert shares["hunter"] > 0.5, "the part that is not earned stays"


def test_a_player_that_is_the_whole_mixture_earns_too() -> None:
    ladder = np.sign(np.subtract.outer(np.arange(3), np.arange(3))).astype(float)
    earned = Earned({"main": 1.0, "hunter": 1.0}, 0.5)
    earned.follow(np.arange(3), ["hunter", "hunter", "main"], played(ladder))
    assert earned.shares["main"] > 1.0 > earned.shares["hunter"]


def test_players_that_have_not_met_the_mixture_count_for_nothing() -> None:
    earned, returns = Earned({"main": 1.0, "hunter": 1.0}, 0.5), played(RPS)
    assert earned.follow(np.arange(4), ["main", "main", "hunter", "hunter"], returns)
    alone = Earned({"main": 1.0, "hunter": 1.0}, 0.5)
    alone.follow(np.arange(3), ["main", "main", "hunter"], returns)
    assert earned.shares == alone.shares
    nobody = Earned({"main": 1.0}, 0.5)
    assert nobody.follow(np.arange(2), ["main", "main"], Returns()) and nobody.shares == {"main": 1.0}


def test_shares_follow_the_mixture_where_best_responses_count() -> None:
    earned, returns, slots = Earned({"main": 4.0, "hunter": 1.0, "other": 1.0}, 0.5), Returns(), np.arange(4)
    returns.settings = replace(returns.settings, against=BEST_RESPONSES)
    parents = ["main", "hunter", "main", None]
    assert not earned.follow(slots, parents, returns), "no mixture was found yet"
    returns.found(LeastExploitable(slots, np.array([[0.1, 0.5, 0.2, 0.2], [0.3, 0.5, 0.0, 0.2]]), 1.0))
    assert earned.follow(slots, parents, returns)
    assert earned.shares == pytest.approx(
        {"main": 2.0 + 3.0 * 0.3 / 0.8, "hunter": 0.5 + 3.0 * 0.5 / 0.8, "other": 0.5}
    )
    assert not earned.follow(slots, parents, returns)
    returns.found(LeastExploitable(slots, np.array([[0.0, 0.0, 0.0, 1.0]] * 2), 1.0))
    assert earned.follow(slots, parents, returns), "the mixture plays only a player added by hand"
    assert earned.shares == {"main": 4.0, "hunter": 1.0, "other": 1.0}


def test_shares_equal_the_updates_if_no_part_is_earned() -> None:
    updates = {"main": 0.7, "hunter": 0.1}
    earned = Earned(updates, 0.0)
    earned.follow(np.arange(3), ["main", "main", "hunter"], played(RPS))
    assert earned.shares == updates
