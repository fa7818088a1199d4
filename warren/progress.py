"""Progress of a long command on stderr: none if it ends soon; on a terminal, one line that is rewritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO, TypeVar

Item = TypeVar("Item")

FIRST = 2.0  # s until the first line
EVERY = 10.0  # s between lines if stderr is not a terminal


def shown(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    *,
    to: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """Yield `items` and write how many were taken so far, of `total` if given: "12,000 of 30,000 WHAT"."""
    out = sys.stderr if to is None else to
    terminal = out.isatty()
    due, said = clock() + FIRST, False
    try:
        for number, item in enumerate(items, 1):
            yield item
            if (now := clock()) >= due:
                due, said = now + (FIRST if terminal else EVERY), True
                text = f"{number:,} {what}" if total is None else f"{number:,} of {max(number, total):,} {what}"
                out.write(f"\r{text}" if terminal else f"{text}\n")
                out.flush()
    finally:
        if terminal and said:
            out.write("\n")
            out.flush()
