"""Tables: whole in a file or a pipe, cut to the width of a terminal."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from league.cli.tables import output, table

ROWS = {"player": ["main", "hunter"], ">games": ["1,000", "2"], "reason": ["x" * 200, "y" * 90]}


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    console = output()
    console.print(table(ROWS, console.width, (">games",)))
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_a_table_in_a_pipe_has_every_column_and_whole_cells(capsys: pytest.CaptureFixture[str]) -> None:
    heading, first, second = printed(capsys)
    assert heading.split() == ["player", "games", "reason"]
    assert first.split() == ["main", "1,000", "x" * 200] and second.split() == ["hunter", "2", "y" * 90]


def test_output_is_as_wide_as_its_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert output().width == 40


def test_a_narrow_table_cuts_texts_and_no_figures() -> None:
    rows = {"player": ["league_exploiter_0"], "state": ["learning"], ">win rate": ["0.540"], ">95 %": ["1298 to 1315"]}
    shown = Console(width=46, file=io.StringIO())
    shown.print(table(rows, 46))
    heading, row = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert heading.split() == ["player", "state", "win", "rate", "95", "%"]
    assert row.split() == ["league_e…", "learning", "0.540", "1298", "to", "1315"]
