"""Tests of warren.progress: a long command reports its progress, a short one prints nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from warren import progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def said(out: io.StringIO, seconds: int, total: int | None = None) -> str:
    """Return the output for `seconds` items that take one second each."""
    now = 0.0

    def items() -> Iterator[int]:
        nonlocal now
        for number in range(seconds):
            now += 1.0
            yield number

    assert list(progress.shown(items(), "events", total, to=out, clock=lambda: now)) == list(range(seconds))
    return out.getvalue()


def test_work_of_less_than_two_seconds_prints_nothing() -> None:
    assert said(io.StringIO(), 1) == said(Terminal(), 1) == ""


def test_a_file_gets_a_line_after_two_seconds_and_then_every_ten() -> None:
    assert said(io.StringIO(), 23) == "2 events\n12 events\n22 events\n"
    assert said(io.StringIO(), 3, 30) == "2 of 30 events\n"
    assert said(io.StringIO(), 2, 1) == "2 of 2 events\n"  # more items than the total


def test_a_terminal_gets_one_line_that_is_overwritten_and_ended() -> None:
    assert said(Terminal(), 5) == "\r2 events\r4 events\n"


def test_a_terminals_line_is_ended_if_the_work_fails() -> None:
    out, now = Terminal(), iter(range(0, 100, 5))
    with pytest.raises(OSError):
        for _ in progress.shown(range(9), "events", to=out, clock=lambda: next(now)):
            if out.getvalue():
                raise OSError
    assert out.getvalue().endswith("\n")
