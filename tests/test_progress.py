"""warren.progress: a long command says how far it is, a short one nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from warren import progress


class Terminal(io.StringIO):
    """A terminal's stderr."""

    def isatty(self) -> bool:
        return True


def said(out: io.StringIO, seconds: int, total: int | None = None) -> str:
    """Return what is said of `seconds` items that take a second each."""
    now = 0.0

    def items() -> Iterator[int]:
        nonlocal now
        for number in range(seconds):
            now += 1.0
            yield number

    assert list(progress.shown(items(), "events", total, to=out, clock=lambda: now)) == list(range(seconds))
    return out.getvalue()


def test_nothing_is_said_of_what_takes_less_than_two_seconds() -> None:
    assert said(io.StringIO(), 1) == said(Terminal(), 1) == ""


def test_a_file_gets_a_line_after_two_seconds_and_then_every_ten() -> None:
    assert said(io.StringIO(), 23) == "2 events\n12 events\n22 events\n"
    assert said(io.StringIO(), 3, 30) == "2 of 30 events\n"
    assert said(io.StringIO(), 2, 1) == "2 of 2 events\n"  # more came than were counted before


def test_a_terminal_has_one_line_written_anew_and_ended() -> None:
    assert said(Terminal(), 5) == "\r2 events\r4 events\n"


def test_a_terminals_line_is_ended_where_the_work_fails() -> None:
    out, now = Terminal(), iter(range(0, 100, 5))
    with pytest.raises(OSError):
        for _ in progress.shown(range(9), "events", to=out, clock=lambda: next(now)):
            if out.getvalue():
                raise OSError
    assert out.getvalue().endswith("\n")
