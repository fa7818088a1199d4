"""Tests of benchmarks.dashboard_pictures: a picture of each page for small runs, and a GIF of a growing league."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support.recorded_leagues import small_league, write

pytest.importorskip("starlette")
pytest.importorskip("playwright.sync_api")
if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
    pytest.skip("chromium is not installed", allow_module_level=True)

from benchmarks import dashboard_pictures


def made(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["pictures", str(folder), *words, "--out", str(folder / "out")])
    dashboard_pictures.main()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "league/league", small_league().entries)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("env: {id: CartPole-v1}\n")
        (tmp_path / name / "metrics.jsonl").write_text(
            '{"steps": 1, "mean_return": 1}\n{"steps": 2, "mean_return": 3}\n'
        )
    return tmp_path


def test_a_leagues_film_shows_each_moment_and_holds_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_pictures, "MOMENTS", 4)
    monkeypatch.setattr(dashboard_pictures, "HELD", 2)
    made(monkeypatch, folder, "--league", "league", "--plain", "one", "--plain", "two")
    with PIL.Image.open(folder / "out/dashboard_growing.gif") as film:
        assert (film.n_frames, film.size) == (5, dashboard_pictures.TALL)
        frames = []
        for number in range(5):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")))
    assert all((one != other).any() for one, other in pairwise(frames[:4]))
    assert (frames[3] == frames[4]).all()
    for name in ("league", "phone", "plain"):
        with PIL.Image.open(folder / f"out/dashboard_{name}.png") as picture:
            assert len(picture.getcolors(maxcolors=256)) > 10, name


def test_a_league_without_recorded_matches_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"error: --game league: it has no recorded matches; train with"):
        made(monkeypatch, folder, "--game", "league")
