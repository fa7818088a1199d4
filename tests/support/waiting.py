"""Waits for a condition, with a bound that only a test that hangs reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0  # s; enough on any busy machine


def until(condition: Callable[[], Any], what: str = "it", timeout: float = PATIENCE) -> Any:
    """Return `condition()`'s value once it is true. Raises AssertionError after `timeout` s."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout:g} s"
        time.sleep(0.01)
    return result
