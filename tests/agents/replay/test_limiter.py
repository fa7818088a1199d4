"""The limiter: Reverb's rule of samples per insert, step by step."""

from __future__ import annotations

import pytest

from agents.replay import Limiter


def test_until_begin_at_inserts_do_not_wait_and_nothing_is_drawn() -> None:
    limiter = Limiter(4.0, begin_at=100, error_buffer=8.0)
    limiter.inserts = 90
    assert limiter.may_insert(9) and not limiter.may_sample(1)
    limiter.inserts = 100
    assert limiter.may_sample(8) and not limiter.may_sample(9)


def test_inserts_and_samples_wait_for_each_other_within_the_buffer() -> None:
    limiter = Limiter(2.0, begin_at=10, error_buffer=6.0, inserts=10)
    assert limiter.may_insert(3) and not limiter.may_insert(4), "2 * 3 is within the error buffer of 6"
    limiter.inserts += 3
    assert limiter.ahead == 6.0 and not limiter.may_insert(1)
    limiter.samples += 12
    assert limiter.ahead == -6.0 and not limiter.may_sample(1) and limiter.may_insert(6)


@pytest.mark.parametrize("per_insert", [0.25, 1.0, 8.0])
def test_in_the_long_run_the_ratio_is_kept(per_insert: float) -> None:
    limiter = Limiter(per_insert, begin_at=64, error_buffer=per_insert * 16 + 32)
    for _ in range(1000):
        if limiter.may_sample(32):
            limiter.samples += 32
        else:
            assert limiter.may_insert(16), "inserts and samples must not both wait"
            limiter.inserts += 16
    assert limiter.samples == pytest.approx(per_insert * (limiter.inserts - 64), abs=2 * limiter.error_buffer)
