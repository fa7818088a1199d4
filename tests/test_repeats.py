"""warren.repeats: the first is told at once, the rest every ten seconds with their number."""

from __future__ import annotations

from warren.repeats import Repeats


def test_the_first_is_told_at_once_and_the_rest_every_ten_seconds_with_their_number() -> None:
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
