"""league.rules.win_rates: decayed counts of both ordered pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from league.rules.win_rates import CELL_BYTES, Payoff, games_of, row_from_bytes, win_rates_of

GAMES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.text("wdl", min_size=1, max_size=3)), min_size=1, max_size=60
)


def payoff(slots: int = 4, decay: float = 0.99) -> Payoff:
    made = Payoff(decay)
    made.grow(slots)
    return made


def cell(made: Payoff, home: int, away: int) -> tuple[float, float]:
    """Return (games, win rate) of a cell."""
    where = np.array([away])
    return float(made.games(home, where)[0]), float(made.win_rates(home, where)[0])


def test_ten_wins_then_ten_losses_leave_the_published_numbers() -> None:
    made = payoff()
    made.record(0, 1, "w" * 10 + "l" * 10)
    games, rate = cell(made, 0, 1)
    assert games == pytest.approx(18.209306, abs=5e-7)
    assert rate == pytest.approx(0.474895, abs=5e-7)


def test_the_other_side_sees_the_same_games_mirrored() -> None:
    made = payoff()
    made.record(0, 1, "w" * 10 + "l" * 10)
    games, rate = cell(made, 1, 0)
    assert games == pytest.approx(18.209306, abs=5e-7)
    assert rate == pytest.approx(1.0 - 0.474895, abs=5e-7)


def test_a_pair_that_never_met_has_a_win_rate_of_one_half() -> None:
    assert cell(payoff(), 2, 3) == (0.0, 0.5)


def test_a_draw_is_half_a_win() -> None:
    made = payoff()
    made.record(0, 1, "d")
    assert cell(made, 0, 1) == cell(made, 1, 0) == (1.0, 0.5)


def test_games_saturate_at_a_hundred() -> None:
    made = payoff()
    made.record(0, 1, "w" * 5000)
    games, rate = cell(made, 0, 1)
    assert games == pytest.approx(100.0) and games <= 100.0
    assert rate == 1.0


def test_without_decay_games_are_counted_plainly() -> None:
    made = payoff(decay=1.0)
    made.record(0, 1, "wwl")
    assert cell(made, 0, 1) == (3.0, pytest.approx(2 / 3))


def test_a_player_against_itself_stays_at_one_half() -> None:
    made = payoff()
    made.record(2, 2, "wwwld")
    games, rate = cell(made, 2, 2)
    assert rate == 0.5 and games == pytest.approx(sum(0.99**age for age in range(5)))


@given(GAMES, st.floats(0.5, 1.0))
def test_both_ordered_pairs_agree_whatever_is_played(games: list[tuple[int, int, str]], decay: float) -> None:
    made = payoff(decay=decay)
    for home, away, outcomes in games:
        made.record(home, away, outcomes)
    rates, counts = win_rates_of(made.cells), games_of(made.cells)
    assert rates + rates.T == pytest.approx(np.ones((4, 4)))
    assert counts == pytest.approx(counts.T)
    assert rates.min() >= 0.0 and rates.max() <= 1.0
    assert counts.max() <= (1.0 / (1.0 - decay) if decay < 1.0 else np.inf) + 1e-9


@given(GAMES)
def test_recording_for_one_pair_leaves_all_others_alone(games: list[tuple[int, int, str]]) -> None:
    made = payoff()
    for home, away, outcomes in games:
        before = made.cells.copy()
        made.record(home, away, outcomes)
        changed = {(int(i), int(j)) for i, j in np.argwhere((made.cells != before).any(axis=-1))}
        assert changed <= {(home, away), (away, home)}


def test_growing_keeps_what_was_counted() -> None:
    made = payoff(2)
    made.record(0, 1, "w")
    made.grow(100)
    assert cell(made, 0, 1) == (1.0, 1.0) and made.cells.shape == (100, 100, 3)


def test_clearing_a_player_forgets_its_row_and_its_column_only() -> None:
    made = payoff()
    for home, away in ((0, 1), (2, 0), (1, 2)):
        made.record(home, away, "w")
    made.clear(0)
    assert games_of(made.cells).sum() == 2.0 and cell(made, 1, 2) == (1.0, 1.0)


def test_a_snapshot_may_inherit_the_record_of_its_parent_against_the_others() -> None:
    made = payoff()
    made.record(0, 1, "wwl")
    made.record(2, 0, "w")
    made.copy_player(0, 3)
    assert cell(made, 3, 1) == cell(made, 0, 1) and cell(made, 2, 3) == cell(made, 2, 0)
    assert cell(made, 3, 0) == (0.0, 0.5) and cell(made, 3, 3) == (0.0, 0.5)


def test_a_row_of_redis_that_is_shorter_than_the_league_reads_as_zeros() -> None:
    made = payoff()
    made.record(0, 1, "wd")
    data = made.cells[0].tobytes()
    assert (row_from_bytes(data, 4) == made.cells[0]).all()
    assert (row_from_bytes(data[: 2 * CELL_BYTES], 6)[:2] == made.cells[0, :2]).all()
    assert row_from_bytes(b"", 3).tolist() == [[0.0] * 3] * 3


def test_an_impossible_decay_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5 is not in \(0, 1\]"):
        Payoff(1.5)
