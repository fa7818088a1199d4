"""league.rules.pfsp: the weightings of the paper to six digits, and properties for any win rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from league.rules.pfsp import WEIGHTINGS, pfsp
from warren.errors import MatchmakingError, UnknownName

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("variance", [0.209302, 0.581395, 0.209302]),
        ("linear", [0.6, 0.333333, 0.066667]),
        ("linear_capped", [0.454545, 0.454545, 0.090909]),
        ("squared", [0.757009, 0.233645, 0.009346]),
        ("uniform", [0.333333, 0.333333, 0.333333]),
    ],
)
def test_probabilities_are_those_of_the_paper(weighting: str, expected: list[float]) -> None:
    assert pfsp([0.1, 0.5, 0.9], weighting) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize("weighting", ["linear", "linear_capped", "squared", "variance"])
def test_opponents_that_always_lose_are_chosen_uniformly(weighting: str) -> None:
    assert pfsp([1.0, 1.0, 1.0, 1.0], weighting).tolist() == [0.25] * 4


def test_variance_is_uniform_over_opponents_that_always_win() -> None:
    assert pfsp([0.0, 0.0], "variance").tolist() == [0.5, 0.5]


def test_a_sum_of_weights_just_above_the_bound_still_counts() -> None:
    assert pfsp([1.0 - 2e-10, 1.0], "linear") == pytest.approx([1.0, 0.0])
    assert pfsp([1.0 - 2e-11, 1.0], "linear").tolist() == [0.5, 0.5]


@given(RATES, st.sampled_from(sorted(WEIGHTINGS)))
def test_probabilities_are_not_negative_and_sum_to_one(rates: list[float], weighting: str) -> None:
    p = pfsp(rates, weighting)
    assert p.shape == (len(rates),) and p.min() >= 0.0 and p.sum() == pytest.approx(1.0)


@given(RATES, st.sampled_from(["linear", "linear_capped", "squared"]))
def test_no_opponent_is_chosen_less_often_than_an_easier_one(rates: list[float], weighting: str) -> None:
    in_order = pfsp(sorted(rates), weighting)
    assert (np.diff(in_order) <= 1e-12).all()


def test_no_candidates_and_impossible_win_rates_are_refused() -> None:
    with pytest.raises(MatchmakingError, match="at least one"):
        pfsp([])
    for impossible in (-0.1, 1.1, float("nan")):
        with pytest.raises(MatchmakingError, match=f"win rate {impossible}"):
            pfsp([0.5, impossible])


def test_an_unknown_weighting_suggests_a_known_one() -> None:
    with pytest.raises(UnknownName, match="did you mean squared"):
        pfsp([0.5], "square")
