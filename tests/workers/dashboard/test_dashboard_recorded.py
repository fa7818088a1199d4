"""Recorded matches in the dashboard: boards of text, or pictures of a game that draws itself."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from support.asgi import ask
from support.played import NETWORK, play_match

from warren.errors import ConfigurationError, UnknownName
from workers.config.schema import Config, to_yaml
from workers.dashboard import recorded as module
from workers.dashboard.catalogue import Catalogue, Run
from workers.dashboard.recorded import Recorded
from workers.replays.folder import FOLDER, ReplayWriter

pytestmark = pytest.mark.usefixtures("one_thread")
DRAWN, TEXT = "pettingzoo:connect_four_v3", "openspiel:connect_four"


def recorded(folder: Path, env: str) -> Run:
    """Return a run that holds a recorded match, m1."""
    league = {"env": env, "players": {"main": {"kind": "self_play"}}, "network": NETWORK}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(Config(trial="t", league=league)))
    writer = ReplayWriter(folder / FOLDER, 1 << 20)
    writer.append([play_match(env)[0].to_bytes()])
    writer.close()
    return Run(folder.name, folder)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("pettingzoo.classic.connect_four_v3", reason="pettingzoo's classic games are not installed")
    return recorded(tmp_path_factory.mktemp("runs") / "drawn", DRAWN)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("runs") / "text", TEXT)


def pixels(data: bytes) -> Any:
    return np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB"))


def test_a_game_that_draws_itself_has_a_picture_per_move(drawn: Run) -> None:
    games = Recorded()
    shown = games.game(drawn, "m1", 1)
    assert shown["drawn"]
    moves = len(shown["moves"])
    forwards = [pixels(games.picture(drawn, "m1", 1, move)) for move in range(moves + 1)]
    for before, after in pairwise(forwards):
        assert before.shape == after.shape and (before != after).any(), "each move adds a piece"
    again = Recorded()
    for move in (moves, 2, moves - 1, 0, 0):
        assert (pixels(again.picture(drawn, "m1", 1, move)) == forwards[move]).all(), move
    assert (pixels(again.picture(drawn, "m1", 2, 0)) == forwards[0]).all(), "all games begin alike"


def test_a_film_shows_all_moves_up_to_a_bound_of_frames(drawn: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    games = Recorded()
    moves = len(games.game(drawn, "m1", 1)["moves"])
    with PIL.Image.open(io.BytesIO(games.film(drawn, "m1", 1))) as film:
        assert film.format == "GIF" and film.n_frames == moves + 1
    monkeypatch.setattr(module, "FRAMES", 3)
    with PIL.Image.open(io.BytesIO(games.film(drawn, "m1", 1))) as film:
        assert film.n_frames <= 4


def test_a_game_of_text_has_boards_and_refuses_pictures(text: Run) -> None:
    games = Recorded()
    shown = games.game(text, "m1", 1)
    assert not shown["drawn"] and all(move["board"] for move in shown["moves"])
    with pytest.raises(ConfigurationError, match="draws no pictures"):
        games.picture(text, "m1", 1, 0)
    with pytest.raises(ConfigurationError, match="draws no pictures"):
        games.film(text, "m1", 1)


def test_unknown_moves_and_games_are_refused(drawn: Run) -> None:
    games = Recorded()
    for move in (-1, 1000):
        with pytest.raises(ConfigurationError, match="move: "):
            games.picture(drawn, "m1", 1, move)
    for match, number in (("m1", 0), ("m1", 1000), ("m2", 1)):
        with pytest.raises(UnknownName):
            games.picture(drawn, match, number, 0)


def test_pictures_and_films_have_their_content_types(drawn: Run, text: Run) -> None:
    pytest.importorskip("starlette")
    from workers.dashboard.server import Dashboard

    for run, status in ((drawn, 200), (text, 409)):
        app = Dashboard(Catalogue(run.folder)).app("let-me-in")
        for kind, name in (("picture", "image/png"), ("film", "image/gif")):
            address = f"/api/{kind}?run={run.name}&match=m1&game=1"
            answer = ask(app, address, headers={"authorization": "Bearer let-me-in"})
            assert answer.status == status
            assert answer.headers["content-type"] == (name if status == 200 else "application/json")
            assert ask(app, address).status == 401
