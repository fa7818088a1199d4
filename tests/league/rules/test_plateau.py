"""league.rules.plateau: a player's return against its target, and the end of its rise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from league.rules.plateau import Look, has_stopped_rising, since


def looks(means: Sequence[float], error: float = 0.1, games: int = 2048) -> list[Look]:
    return [
        Look(0, 1000 * number, games, mean, mean - error, mean + error) for number, mean in enumerate(means, start=1)
    ]


def stops_at(found: Sequence[Look], patience: int = 3) -> int | None:
    """Return the number of looks after which the rise has ended, None if it has not."""
    ends = (count for count in range(len(found) + 1) if has_stopped_rising(found[:count], patience, 2048))
    return next(ends, None)


@pytest.mark.parametrize(
    ("means", "patience", "stop"),
    [
        ([-0.8, -0.5, -0.3, -0.1, 0.0, 0.1], 3, None),
        ([-0.8, 0.2, 0.2, 0.1, 0.15], 3, 5),
        ([-0.8, 0.2, 0.1, 0.3, 0.2, 0.3], 3, None),  # the fourth is a new highest, with two after it
        ([-0.8, 0.2, 0.1, 0.3, 0.2, 0.3, 0.25], 3, 7),
        ([0.2, 0.1], 1, 2),
        ([0.2, 0.1], 3, None),
        ([], 1, None),
    ],
)
def test_a_rise_ends_after_enough_looks_without_a_new_highest(
    means: list[float], patience: int, stop: int | None
) -> None:
    assert stops_at(looks(means), patience) == stop


def test_a_higher_mean_in_a_wider_interval_is_no_rise() -> None:
    found = looks([0.2]) + looks([0.25, 0.28, 0.3], error=0.3)
    assert stops_at(found) == 4
    assert stops_at(looks([0.2]) + looks([0.25, 0.28, 0.3], error=0.1)) is None


def test_looks_at_a_stronger_target_are_compared_among_themselves() -> None:
    weak, strong = [-0.2, 0.5, 0.9], [-0.5, -0.3, -0.1, 0.1]
    assert stops_at(looks([*weak, *strong])) is None
    assert stops_at(looks([*weak, *strong, 0.0, 0.05, 0.1])) == 10
    assert stops_at(looks([*weak, 0.8, 0.75, 0.8])) == 6, "overlapping intervals do not show a stronger target"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_looks_without_a_finite_mean_or_enough_games_are_ignored(wrong: float) -> None:
    rising, flat = looks([-0.5, 0.2]), looks([0.1] * 9)
    nothing = [*looks([wrong] * 9), *looks([0.1] * 9, games=2047)]
    assert not has_stopped_rising([*rising, *nothing], 3, 2048)
    assert has_stopped_rising([*rising, *nothing, *flat[:2], *nothing, *flat[:1]], 3, 2048)
    assert not has_stopped_rising(looks([wrong] * 9), 1, 2048)


def test_looks_of_other_weights_or_before_a_snapshot_are_left_out() -> None:
    given = [
        Look(generation, steps, 1, 0.0, 0.0, 0.0) for generation, steps in ((0, 100), (1, 150), (1, 200), (1, 300))
    ]
    assert [look.steps for look in since(given, generation=1, steps=150)] == [200, 300]


def test_a_rise_by_more_than_the_noise_is_rarely_cut_short_and_a_plateau_ends() -> None:
    rng, rise = np.random.default_rng(4), np.linspace(-0.8, 0.4, 12)
    early = sum(stops_at(looks(rise + rng.normal(0.0, 0.05, 12))) is not None for _ in range(300))
    late = [stops_at(looks(rng.normal(0.3, 0.05, 40))) for _ in range(300)]
    assert early <= 15
    assert all(late) and np.median([stop for stop in late if stop]) <= 8
