"""Values on a command line: numbers within bounds, for `type` of argparse's options, and tables as JSON.

parser.add_argument("--rows", type=whole(1))
"""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

from warren.errors import ConfigurationError

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


def table(option: str, text: str, example: str = '{"size": 3}') -> dict[str, Any]:
    """Return the JSON object that `option` gives, written like `example`. Raises ConfigurationError."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {text!r} is not JSON ({error}); write it as '{example}'") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"{option}: {text!r} is not a JSON object; write it as '{example}'")
    return found
