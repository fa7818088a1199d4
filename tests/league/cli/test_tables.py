"""Tables: whole in a file or a pipe, cut to the width of a terminal."""

from __future__ import annotations

import sys

import pytest

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
