"""Mean returns as text for people."""

from __future__ import annotations

import pytest

from workers.ui import returns


@pytest.mark.parametrize(
    ("mean", "text"), [(474.96, "475.0"), (-199.5, "-199.5"), (0.874, "0.87"), (-1.0, "-1.00"), (None, "unknown")]
)
def test_small_returns_have_one_digit_more(mean: float | None, text: str) -> None:
    assert returns.shown(mean) == text
