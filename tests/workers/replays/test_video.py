"""Tests of films: every frame is kept, and written while the film is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from warren.errors import ConfigurationError
from workers.replays.video import Video


def pictures(number: int) -> list[np.ndarray]:
    """Return a grey board on which a coloured square moves; every third frame repeats the one before."""
    made = []
    for frame in range(number):
        board = np.full((40, 60, 3), 90, np.uint8)
        at = frame - (frame % 3 == 2)
        board[at % 30 : at % 30 + 5, at : at + 8] = (200, at, 30)
        made.append(board)
    return made


def test_a_gif_holds_every_frame_and_is_written_while_it_is_filmed(tmp_path: Path) -> None:
    film = Video(tmp_path / "film.gif")
    film.fps = 20.0
    sizes = []
    for picture in pictures(50):
        film.add(picture)
        assert film._gif is not None
        film._gif.flush()
        sizes.append(film.path.stat().st_size)
    assert sizes == sorted(set(sizes)), "each frame is in the file before the next comes"
    film.close()
    with PIL.Image.open(film.path) as image:
        assert (image.n_frames, image.size, image.info["duration"], image.info["loop"]) == (50, (60, 40), 50, 0)
        for number, picture in enumerate(pictures(50)):
            image.seek(number)
            assert (np.asarray(image.convert("RGB")) == picture).all(), number


def test_a_place_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    film = Video(tmp_path / "nowhere" / "film.gif")
    with pytest.raises(ConfigurationError, match=r"film\.gif: cannot be written \(No such file or directory\)"):
        film.add(pictures(1)[0])
    film.close()
