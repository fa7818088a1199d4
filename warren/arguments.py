"""Numbers on a command line, for `type` of argparse's options: outside their bounds they are refused with these.

parser.add_argument("--rows", type=whole(1))
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

LARGEST = 2**63 - 1  # a number of 64 bits with a sign
LARGEST_SEED = 2**32 - 1  # limit of numpy and gymnasium


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """Return a function that reads a whole number from `least` to `most`. It raises ArgumentTypeError for others."""

    def read(given: str) -> int:
        try:
            found = int(given)
        except ValueError:
            raise ArgumentTypeError(f"{given!r} is not a whole number") from None
        if not least <= found <= most:
            bound = f"{least:,} at least" if found < least else f"{most:,} at most"
            raise ArgumentTypeError(f"{given} is too {'small' if found < least else 'large'}; use {bound}")
        return found

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Return a function that reads a number from `least` to `most`. It raises ArgumentTypeError for others."""

    def read(given: str) -> float:
        try:
            found = float(given)
        except ValueError:
            raise ArgumentTypeError(f"{given!r} is not a number") from None
        if not least <= found <= most:  # nor is NaN
            raise ArgumentTypeError(f"{given} is not within {least:,g} and {most:,g}; use a number that is")
        return found

    return read
