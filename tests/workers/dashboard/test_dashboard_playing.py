"""Games in the dashboard: a person against players of a league, boards of text, and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.saved_league import ROCK_PAPER_SCISSORS, save_league

from warren.errors import ConfigurationError, UnknownName
from workers.dashboard import playing
from workers.dashboard.__main__ import catalogue_of, listening, main
from workers.dashboard.boards import board_of
from workers.dashboard.playing import Tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "rps"
    folder.mkdir()
    save_league(folder, ROCK_PAPER_SCISSORS, 2)
    return folder


def test_a_game_ends_by_legal_moves_and_shows_the_players_view(folder: Path) -> None:
    tables = Tables()
    for seat in (0, 1):
        shown = tables.sit(folder, "main", seat, False)
        assert (shown["seat"], shown["over"], len(shown["legal"])) == (seat, False, 3)
        assert sum(shown["view"]["probabilities"].values()) == pytest.approx(1.0, abs=1e-3)
        shown = tables.move(shown["game"], shown["legal"][0]["action"])
        assert shown["over"] and sum(shown["returns"]) == 0.0 and shown["legal"] == []
        assert sorted(move["by"] for move in shown["moves"]) == ["main", "you"]
        machine = next(move for move in shown["moves"] if move["by"] == "main")
        assert machine["view"]["probabilities"][machine["action"]] > 0.0


def test_hidden_moves_are_shown_at_the_end_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.TwoPlayerVectorEnv.hidden_moves", True)
    tables = Tables()
    shown = tables.sit(folder, "main", 1, False)
    (theirs,) = shown["moves"]
    assert (theirs["action"], theirs["view"]) == ("has moved", None)
    theirs, mine = tables.move(shown["game"], shown["legal"][0]["action"])["moves"]
    assert theirs["action"] in theirs["view"]["probabilities"] and mine["by"] == "you"


def test_a_greedy_player_takes_its_likeliest_move(folder: Path) -> None:
    tables = Tables()
    for _ in range(5):
        shown = tables.sit(folder, "main", 1, True)
        shares = shown["moves"][0]["view"]["probabilities"]
        assert shown["moves"][0]["action"] == max(shares, key=shares.__getitem__)


@pytest.mark.parametrize("action", [3, -1, None, "0", True, 0.5, 1.0, [0]])
def test_a_move_that_is_not_legal_changes_nothing(folder: Path, action: Any) -> None:
    tables = Tables()
    shown = tables.sit(folder, "main", 0, False)
    with pytest.raises(ConfigurationError, match="is not legal now"):
        tables.move(shown["game"], action)
    assert tables.move(shown["game"], 0)["over"]
    with pytest.raises(ConfigurationError, match="is not legal now"):
        tables.move(shown["game"], 0)


def test_an_idle_game_makes_room_for_new_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "TABLES", 2)
    tables = Tables()
    first = tables.sit(folder, "main", 0, False)["game"]
    for _ in range(2):
        tables.sit(folder, "main", 0, False)
    with pytest.raises(UnknownName, match="begin another"):
        tables.move(first, 0)
    with pytest.raises(UnknownName, match="nobody"):
        tables.sit(folder, "nobody", 0, False)
    for seat in (2, True, 1.0, "1"):
        with pytest.raises(ConfigurationError, match="seat"):
            tables.sit(folder, "main", seat, False)


@pytest.mark.parametrize(
    ("text", "board"),
    [
        ("...\n.x.\no..\n", ["...", ".x.", "o.."]),
        ("white moves\n. x .\n. . o\n\nend", [".x.", "..o"]),
        ("2b", None),
        ("[0. 1. 0.]\n[1. 1. 1.]", None),
        ("", None),
        ("<script>alert(1)</script>", None),
    ],
)
def test_rows_of_single_characters_are_a_board(text: str, board: list[str] | None) -> None:
    assert board_of(text) == {"text": text, "board": board}


def test_a_wrong_folder_or_port_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    taken = listening("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigurationError, match="choose another"):
            listening("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match="--port"):
            listening("127.0.0.1", 99999)
        with pytest.raises(ConfigurationError, match=r"--host: a\.\.b is no address .*; name one of this machine"):
            listening("a..b", 0)
        with pytest.raises(ConfigurationError, match=r"--host: 203\.0\.113\.1 is not this machine's; name one"):
            listening("203.0.113.1", 0)
    finally:
        taken.close()
    assert catalogue_of(str(tmp_path)).runs() == []
