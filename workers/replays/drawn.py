"""Games that draw themselves, and the pictures of one recorded game."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from envs import TwoPlayerVectorEnv
from envs.sources import SOURCES
from warren.errors import ConfigurationError
from workers.replays.match_record import RecordedMatch
from workers.replays.rebuild import Move, moves
from workers.replays.recorded_run import RecordedRun

DRAWN_UNSEEN = {"SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}  # games drawn by pygame need no display


def draw_unseen() -> None:
    """Let games that pygame draws run without a display from now on."""
    for name, value in DRAWN_UNSEEN.items():
        os.environ.setdefault(name, value)


def drawing(env_id: str, make: Callable[..., TwoPlayerVectorEnv]) -> TwoPlayerVectorEnv:
    """Return the game that `make` makes, drawing itself if it can."""
    if env_id.partition(":")[0] in SOURCES.keys() - {"pettingzoo"}:
        return make()  # these take no render_mode
    try:
        return make(render_mode="rgb_array")
    except (ConfigurationError, TypeError):
        return make()


class Pictures:
    """The pictures of one recorded game, by the number of moves before; going forward costs only the moves between.

    Raises ConfigurationError if the game draws nothing, ReplayError if it does not go as recorded.
    """

    def __init__(self, run: RecordedRun, record: RecordedMatch, number: int) -> None:
        """Take game `number`, from 0, of a match."""
        self.last = len(record.games[number].actions)  # number of moves, and of the end's picture
        self._game = record.games[number]
        self._env = drawing(run.league.env, run.games)
        self._moves: Iterator[Move | None] = iter(())
        self._at = -1
        self._frame: np.ndarray | None = None
        self._before_last: np.ndarray | None = None  # shown at the end of a game that keeps no picture of its end

    def at(self, move: int) -> np.ndarray:
        """Return the picture uint8 [height, width, 3] before move `move`, from 0; for `last` that of the end."""
        if not 0 <= move <= self.last:
            raise ConfigurationError(f"move: {move} is not one of 0 to {self.last}")
        if self._at < 0 or move < self._at:
            self._moves, self._at = chain(moves(self._env, self._game), (None,)), -1
        while self._at < move:
            if 0 <= self._at == self.last - 1:
                self._before_last = self._env.picture(0)
            next(self._moves)
            self._at, self._frame = self._at + 1, None
        if self._frame is None:
            end = self._env.last_picture(0) if move == self.last else self._env.picture(0)
            self._frame = end if end is not None else self._before_last
        assert self._frame is not None
        return self._frame

    def close(self) -> None:
        """Close the game."""
        self._env.close()
