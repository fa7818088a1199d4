"""Tests of `python -m workers.replay`, which lists, shows, checks and films the matches of a run."""

from __future__ import annotations

import argparse
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from support.played import NETWORK, play_match

from agents.checkpoints import weights_to_bytes
from league.models.saved_files import MODELS
from warren import progress
from warren.errors import ConfigurationError, ReplayError, UnknownName
from warren.standard_streams import PIPE_CLOSED
from workers.config.schema import Config, to_yaml
from workers.replays import command
from workers.replays.folder import FOLDER, ReplayWriter
from workers.replays.match_record import RecordedMatch
from workers.rollout.games.game_log import Weights

pytestmark = pytest.mark.usefixtures("one_thread")


def run_with(folder: Path, env: str, record: RecordedMatch) -> Path:
    """Return a run's folder that holds this match."""
    league = {"env": env, "players": {"main": {"kind": "self_play"}}, "network": NETWORK}
    (folder / "config.yaml").write_text(to_yaml(Config(trial="t", league=league)))
    writer = ReplayWriter(folder / FOLDER, 1 << 20)
    writer.append([record.to_bytes()])
    writer.close()
    return folder


def options(folder: Path, match: str | None = None, **given: object) -> argparse.Namespace:
    default = {"game": None, "check": False, "video": None, "json": False}
    return argparse.Namespace(folder=folder, match=match, **{**default, **given})


def said(given: argparse.Namespace) -> tuple[int, list[str]]:
    lines: list[str] = []
    return command.run(given, lines.append), lines


def test_a_match_is_listed_and_shown_turn_by_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = "openspiel:tic_tac_toe"
    run = run_with(tmp_path, env, play_match(env)[0])
    assert command.run(options(run)) == 0
    listed = capsys.readouterr().out
    assert "m1" in listed and "main@0" in listed and "1 matches" in listed
    status, lines = said(options(run, "last", game=2))
    assert status == 0 and lines[0].startswith("game 2 of ")
    assert "...\n...\n..." in lines[1] and lines[2].startswith("1. player 0 (main@")
    assert " plays x(" in lines[2] and lines[-2].startswith("game 2 is over: ")


def test_a_long_check_reports_its_progress_on_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    played = play_match("openspiel:kuhn_poker")[0]
    run = run_with(tmp_path, "openspiel:kuhn_poker", played)
    writer = ReplayWriter(run / FOLDER, 1 << 20)
    writer.append([replace(played, match="m2").to_bytes()])
    writer.close()
    status, lines = said(options(run, check=True))
    assert status == 0 and lines[0].startswith("2 of 2 matches")
    assert capsys.readouterr().err == "1 of 2 matches\n2 of 2 matches\n"


def test_a_check_reports_matches_with_other_weights_or_results(tmp_path: Path) -> None:
    record, kept = play_match("openspiel:tic_tac_toe")
    run = run_with(tmp_path, record.env, record)
    models = run / "league" / MODELS
    models.mkdir(parents=True)
    away = next(weights for weights in kept if weights.player == "main@0")
    frozen = Weights("main", 1, next(w.digest for w in kept if w[:2] == ("main", 1)))
    (models / "main@1.safetensors").write_bytes(weights_to_bytes(kept[frozen], {}))
    status, lines = said(options(run, check=True))
    assert status == 0 and lines[0].startswith("1 of 1 matches came to their recorded results")
    assert not lines[1].startswith("0 of")
    wrong = replace(record, match="m2", outcomes="w" * len(record.outcomes))
    ReplayWriter(run / FOLDER, 1 << 20).append([wrong.to_bytes()])
    status, lines = said(options(run, check=True))
    assert status == command.DIFFERENT and lines[0].startswith("match m2: its returns make")
    (models / "main@1.safetensors").write_bytes(weights_to_bytes(kept[away], {}))
    status, lines = said(options(run, check=True))
    assert status == command.DIFFERENT and lines[-2].startswith("0 of 2 matches")
    for match in ("m1", "m2"):
        told = [line for line in lines if line.startswith(f"match {match}: ") and "main@1.safetensors" in line]
        assert len(told) == 1 and "holds other weights than those that played as main@1" in told[0]


@pytest.mark.parametrize("name", [None, "last", "m2"])
@pytest.mark.parametrize("as_json", [False, True])
def test_records_are_read_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str | None, as_json: bool
) -> None:
    """Check that few are held at once: all of them may take twenty times a folder's size."""
    record = play_match("matrix:rps")[0]
    run = run_with(tmp_path, record.env, record)
    writer = ReplayWriter(run / FOLDER, 1 << 20)
    writer.append([replace(record, match=f"m{number}").to_bytes() for number in range(2, 60)])
    writer.close()
    alive: weakref.WeakSet[RecordedMatch] = weakref.WeakSet()
    most = 0
    read = RecordedMatch.from_bytes

    def from_bytes(data: bytes) -> RecordedMatch:
        nonlocal most
        alive.add(made := read(data))
        most = max(most, len(alive))
        return made

    monkeypatch.setattr(RecordedMatch, "from_bytes", from_bytes)
    monkeypatch.setattr(RecordedMatch, "__hash__", object.__hash__)
    assert command.run(options(run, name, json=as_json), print) == 0
    said = capsys.readouterr().out
    assert 1 <= most <= 4, f"{most} records were held at once"
    if name is None:
        assert said.count("m59") == 1 and len(said.splitlines()) >= 59


def test_a_list_that_is_piped_keeps_every_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = replace(play_match("matrix:rps")[0], match="m" * 40, home="a_long_name" * 5, away="another_name" * 5)
    assert command.run(options(run_with(tmp_path, record.env, record))) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert all(heading.lstrip(">") in head for heading in command.HEADINGS)
    assert all(cell in first for cell in command.line(record))


def test_a_list_whose_reader_has_left_prints_no_error(tmp_path: Path) -> None:
    """Run the command as `python -m workers.replay RUN | head` does."""
    record = play_match("matrix:rps")[0]
    arguments = [sys.executable, "-m", "workers.replay", str(run_with(tmp_path, record.env, record)), "--json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == PIPE_CLOSED


@pytest.mark.parametrize("kind", [".gif", ".mp4"])
def test_a_game_that_draws_itself_is_filmed_and_another_is_refused(tmp_path: Path, kind: str) -> None:
    if kind == ".mp4":
        pytest.importorskip("cv2")
    pytest.importorskip("pygame")
    record, _ = play_match("pettingzoo:tictactoe_v3")
    run = run_with(tmp_path, record.env, record)
    status, lines = said(options(run, "m1", game=1, video=tmp_path / f"film{kind}"))
    assert status == 0
    assert lines == [f"{len(record.games[0].actions) + 1} frames of game 1 are in {tmp_path / f'film{kind}'}"]
    assert (tmp_path / f"film{kind}").stat().st_size > 1000
    other = tmp_path / "other"
    other.mkdir()
    run = run_with(other, "matrix:rps", play_match("matrix:rps")[0])
    with pytest.raises(ConfigurationError, match="'matrix:rps' draws no pictures; its games are shown as text"):
        said(options(run, "m1", video=tmp_path / "film.gif"))


def test_an_impossible_request_is_one_message(tmp_path: Path) -> None:
    record = play_match("matrix:rps")[0]
    run = run_with(tmp_path, record.env, record)
    with pytest.raises(UnknownName, match=r"match 'x1' does not exist; did you mean m1\? in "):
        said(options(run, "x1"))
    with pytest.raises(ConfigurationError, match="--game 99: match m1 has games 1 to"):
        said(options(run, "m1", game=99))
    with pytest.raises(ConfigurationError, match="--video: of which match"):
        said(options(run, video=tmp_path / "film.gif"))
    other = replace(record, match="m3", env="file.py:Evil")
    ReplayWriter(run / FOLDER, 1 << 20).append([other.to_bytes()])
    with pytest.raises(ReplayError, match=r"match m3 is of 'file\.py:Evil'"):
        said(options(run))
