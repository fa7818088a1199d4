"""Tournaments: results agree with the game's tree, and wrong players are named before a game is played."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console
from support.saved_league import save_league

import envs
from envs import exploitability
from warren.errors import ConfigurationError
from workers.evaluation import duplicate_deals, tournament
from workers.evaluation import exploitability as exploitability_command
from workers.evaluation.saved_sides import player_of
from workers.evaluation.scores import table
from workers.evaluation.tournament import Tournament, main

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = {
    "env": "openspiel:kuhn_poker",
    "players": {"main": {"kind": "main_agent", "config": {"checkpoint_min_steps": 400, "checkpoint_max_steps": 400}}},
    "network": {"name": "mlp", "hidden_sizes": [16]},
    "algorithm": {"name": "ppo", "learning_rate": 0.01, "epochs": 2, "minibatch_size": 256, "gamma": 1.0},
    "games": 32, "tables": 2, "unroll_length": 4, "lanes": 64, "match_games": 32, "period_steps": 400,
    "evaluation_share": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make two runs of one game with different networks, and one of another game."""
    places = [tmp_path_factory.mktemp("runs") / name for name in ("one", "two", "rps")]
    save_league(places[0], SETTINGS, 3)
    save_league(places[1], {**SETTINGS, "seed": 2, "network": {"name": "mlp", "hidden_sizes": []}}, 3)
    save_league(places[2], {**SETTINGS, "env": "matrix:rps"}, 1)
    return places


def test_a_folder_that_cannot_be_made_is_named_before_a_game_is_played(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file/out"
    assert main([f"{runs[0]}:main", "uniform", "--out", str(out)]) == 2
    assert capsys.readouterr().err == f"error: --out {out}: cannot be made (Not a directory); name another folder\n"


def test_a_tournament_over_runs_agrees_with_the_tree_of_the_game(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [(runs[0], "main@0"), (runs[0], "main"), (runs[1], "main")]
    words = [f"{folder}:{player}" for folder, player in named]
    assert main([*words, "uniform", "--games", "6001", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "tournament.json").read_text())
    assert found["players"] == ["one:main@0", "one:main", "two:main", "uniform"] and found["games"] == 6002
    form = exploitability.load("openspiel:kuhn_poker")
    tables = [table(form, player_of(*one).policies[0]) for one in named] + [exploitability.uniform(form)]
    known = exploitability.payoff(form, tables)
    for row, cells in enumerate(found["cells"]):
        for column, cell in enumerate(cells):
            assert (cell is None) == (row == column)
            if cell is not None:
                assert cell["lower"] < known[row, column] < cell["upper"]
                assert cell["mean"] == pytest.approx(-found["cells"][column][row]["mean"])
    for row, overall in enumerate(found["overall"]):
        assert overall["lower"] < known[row].sum() / 3 < overall["upper"]
        assert overall["mean"] == pytest.approx(np.mean([cell["mean"] for cell in found["cells"][row] if cell]))
    best = found["players"][int(np.argmax([each["mean"] for each in found["overall"]]))]
    said = capsys.readouterr().out
    assert said.splitlines()[1].startswith(best) and "6,002 games of each pair" in said
    assert "…" not in said  # in a pipe
    assert matplotlib.image.imread(tmp_path / "tournament.png").ndim == 3


def test_wrong_players_are_named_before_a_game_is_played(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = f"{runs[0]}:main"
    wrong = {
        (one,): "a tournament needs two players",
        (one, one): "one:main is named twice",
        (one, str(runs[2])): "players of one game can meet, these are of 2",
        (one, f"{runs[0]}:mian"): "did you mean main",
        (one, "nowhere:main", "nothing"): "error: nothing is not a run folder",
        (one, "uniform", "--games", "1"): "--games: 1 is too few",
    }
    for words, said in wrong.items():
        assert main([*words, "--out", str(tmp_path / "none")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("seed", ["-1", "1.5", str(2**32)])
@pytest.mark.parametrize("command", [main, exploitability_command.main])
def test_a_seed_that_no_generator_takes_is_refused(
    command: Callable[[list[str]], int], seed: str, runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command([str(runs[0]), "--seed", seed])
    assert f"argument --seed: {seed!r} is not" in (said := capsys.readouterr().err) or f"{seed} is too" in said


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_fits_into_a_terminal_and_cuts_no_figure(runs: list[Path], width: int) -> None:
    entrants, _ = tournament.entrants_of([f"{runs[0]}:main", f"{runs[0]}:main@0", f"{runs[1]}:main", "uniform"])
    played = Tournament(envs.make_two_player("openspiel:kuhn_poker", 8, 1), entrants, 1)
    for _ in played.play(8):
        pass
    shown = Console(width=200, file=io.StringIO())
    made = tournament.standings(played, "kuhn", width)
    assert shown.measure(made).maximum <= max(width, 44)  # the player and its return stay
    assert ("tournament.json has what is too wide" in str(made.caption)) == (width < 80 + 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named_before_a_game_is_played(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    assert main([f"{runs[0]}:main", "uniform", "--out", str(tmp_path)]) == 2
    assert "this user may not write there" in capsys.readouterr().err


def test_runs_of_one_name_in_two_projects_are_told_apart(runs: list[Path], tmp_path: Path) -> None:
    other = shutil.copytree(runs[0], tmp_path / "other" / "one")
    here = runs[0].parent.name
    entrants, _ = tournament.entrants_of([f"{runs[0]}:main", f"{other}:main", f"{other}:main@0", f"{runs[1]}:main"])
    names = [entrant.name for entrant in entrants]
    assert names == [f"{here}/one:main", "other/one:main", "one:main@0", "two:main"]
    with pytest.raises(ConfigurationError, match="one:main is named twice; name each player once"):
        tournament.entrants_of([f"{other}:main", f"{tmp_path}/other/../other/one:main"])


def test_ctrl_c_reports_the_rounds_that_are_whole(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Tournament):
        def play(self, deals: int):
            for number, pair in enumerate(super().play(deals)):
                if number == 4:
                    raise KeyboardInterrupt
                yield pair

    monkeypatch.setattr(tournament, "Tournament", Interrupted)
    monkeypatch.setattr(duplicate_deals, "AT_ONCE", 64)
    words = [f"{runs[0]}:main@0", f"{runs[0]}:main", "uniform", "--out", str(tmp_path)]
    assert main([*words, "--games", "1000"]) == 130
    assert json.loads((tmp_path / "tournament.json").read_text())["games"] == 2 * 64
    assert "interrupted; each pair has played 128 games" in capsys.readouterr().err


def test_few_engines_are_made_for_many_deals(monkeypatch):
    made = []
    monkeypatch.setattr(duplicate_deals, "make_two_player", lambda env, games, *_, **__: made.append((env, games)))
    for deals, env in ((2000, "openspiel:kuhn_poker"), (2000, "football:1_vs_1_easy"), (3, "fightingice:ZEN")):
        duplicate_deals.games_for(deals, 1, env, {})
    assert made == [("openspiel:kuhn_poker", 512), ("football:1_vs_1_easy", 32), ("fightingice:ZEN", 3)]
