"""warren.arguments: numbers of a command line within their bounds."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from warren.arguments import number, whole


def test_numbers_within_their_bounds_are_read() -> None:
    assert [whole(1)("1"), whole(0, 5)("5"), number(0.0, 2.0)("2"), number(0.0, 2.0)("1e-3")] == [1, 5, 2.0, 0.001]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("0", "0 is too small; use 1 at least"),
        ("9", "9 is too large; use 5 at most"),
        ("1.5", "'1.5' is not a whole number"),
        ("nan", "'nan' is not a whole number"),
    ],
)
def test_a_wrong_whole_number_is_refused_with_its_bound(given: str, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^{message}$"):
        whole(1, 5)(given)


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "1e400"])
def test_a_number_outside_its_bounds_is_refused(given: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^{given} is not within 0 and 2; use a number that is$"):
        number(0.0, 2.0)(given)
