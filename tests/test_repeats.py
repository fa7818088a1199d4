"""Test of warren.repeats: the first repeat is logged at once, the others every ten seconds with their number."""

from __future__ import annotations

from warren.repeats import Repeats


def test_repeats_are_logged_at_once_and_then_every_ten_seconds_with_their_number() -> None:
    now = 100.0
    repeats = Repeats(lambda: now)
    assert repeats.line("dropped") == "dropped"
    for _ in range(1233):
        now += 0.008  # 9.9 s in all
        assert repeats.line("dropped") is None
    now = 110.0
    assert repeats.line("dropped") == "dropped (1,235 so far)"
    assert repeats.line("dropped") is None
    now = 500.0
    assert repeats.line("dropped") == "dropped (1,237 so far)"
