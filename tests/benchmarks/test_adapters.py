"""Tests of benchmarks.adapters: both sides of a case play the same game, and pairs of rates give a ratio."""

from __future__ import annotations

import pytest

from benchmarks.adapters.__main__ import CLOCKS, compare
from benchmarks.adapters.games import CASES
from benchmarks.adapters.steppers import COPIES, Missing, Stepper

SLOW_TO_MAKE = {"football", "vizdoom-basic", "atari-pong", "pettingzoo-pong"}  # their adapters have tests of their own


@pytest.mark.parametrize("name", sorted(CASES.keys() - SLOW_TO_MAKE))
def test_both_sides_of_a_case_can_be_stepped(name: str) -> None:
    try:
        adapter, bare = CASES[name]()
    except Missing as missing:
        pytest.skip(str(missing))
    for make in (adapter, bare):
        stepper = make()
        for _ in range(30):
            stepper.step()
        stepper.close()


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    closed = []

    class Idle(Stepper):
        def step(self) -> None: ...

        def close(self) -> None:
            closed.append(self)

    found = compare(Idle, Idle, 0.01, 3, CLOCKS["processor"])
    assert len(closed) == 2 and len(found["ratios"]) == 3
    assert found["ratio"] == sorted(found["ratios"])[1]
    assert found["steps_per_s"] > COPIES
