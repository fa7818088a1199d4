"""league.rules.run_share: thresholds as steps and as shares of a run."""

from __future__ import annotations

import math

import pytest

from league.rules.run_share import RunShare, parse_steps, reached


def test_a_share_is_written_as_a_percentage_and_a_number_is_steps() -> None:
    assert parse_steps("2%") == parse_steps(" 2.0 %") == RunShare(2.0)
    assert str(RunShare(0.5)) == "0.5%" and parse_steps("100%") == RunShare(100.0)
    assert parse_steps(30_000) == parse_steps(3.0e4) == 30_000


@pytest.mark.parametrize(
    "value", ["2", "0%", "101%", "-2%", "2 percent", 0.02, math.nan, math.inf, True, [2], -5, None]
)
def test_other_values_are_not_thresholds(value: object) -> None:
    assert parse_steps(value) is None


def test_a_share_is_reached_only_once_the_runs_length_is_known() -> None:
    assert not reached(10**12, RunShare(0.1))
    assert RunShare(2.0).steps(1_000_000) == 20_000
    assert RunShare(10.0).steps(11_520 / 1.0000000000000002) == 1152
    assert not reached(1151, RunShare(10.0).steps(11_520)) and reached(1152, RunShare(10.0).steps(11_520))
