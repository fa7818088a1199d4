"""Atari games of two players, in PettingZoo's multi-agent emulator, with the usual preprocessing: "pettingzoo:pong_v3".

Both players see one screen, and one network plays either side. The second player sees the screen mirrored if its halves
look alike, as in Pong; in other games an additional plane says which player it is.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from envs.construct import pip, require
from envs.settings import PREPROCESSINGS
from envs.two_player.chance import Chance
from envs.two_player.simultaneous import SimultaneousGames
from envs.two_player.vector_env import PLAYERS
from warren.errors import ConfigurationError
from warren.user_code import requirement

FAMILY = "atari"  # PettingZoo's name of these games
MIRRORED = ("pong_v3",)  # games whose right half looks like the left one, but for scores
_ATARI = PREPROCESSINGS["atari"]


def emulator(env_id: str, full_id: str, **kwargs: Any) -> Any:
    """Return PettingZoo's ParallelAtariEnv of the game `full_id`, with the ROMs that ale-py brings.

    Raises ConfigurationError if a package is missing or the game is not for two.
    """
    pettingzoo = require("pettingzoo", "pettingzoo", env_id)
    require("multi_agent_ale_py", "multi-agent-ale-py", env_id)
    roms = Path(require("ale_py", "ale-py", env_id).__file__ or "").parent
    made = pettingzoo.make("aec", full_id, **{"seed": 1, "auto_rom_install_path": str(roms), **kwargs}).unwrapped
    if len(made.possible_agents) != PLAYERS:
        raise ConfigurationError(f"environment {env_id!r} has {len(made.possible_agents)} agents; it must have two")
    return made


class AtariGames(SimultaneousGames):
    """N emulators, stepped one after another; all have the same actions and see uint8 [frame_stack, resize, resize].

    Each action is played `frame_skip` times; the maximum of the last two screens is seen (Mnih et al. 2015). A game
    begins with 1 to `noop_start` frames without actions. In each frame a player's last action is repeated with
    `repeat_action_probability` (Machado et al. 2018). Rewards cancel: a player's reward is half the difference between
    its gain and the other's. So a point in Pong is 1 and -1. PettingZoo takes a point from a player that does not serve
    within two seconds; that is -.5 and .5.
    """

    chance: Chance

    def __init__(
        self,
        env_id: str,
        full_id: str,
        num_envs: int,
        seed: int,
        *,
        frame_skip: int = _ATARI["frame_skip"],
        frame_stack: int = _ATARI["frame_stack"],
        resize: int = _ATARI["resize"],
        noop_start: int = _ATARI["noop_start"],
        repeat_action_probability: float = 0.25,
        mirrored: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """`mirrored`: whether the second player sees the mirrored screen; None: if the game is known to look alike."""
        for name, value in {"frame_skip": frame_skip, "frame_stack": frame_stack, "resize": resize}.items():
            if value < 1:
                raise ConfigurationError(f"environment {env_id!r}: {name}={value} must be at least 1")
        try:
            self._cv2 = importlib.import_module("cv2")
        except ModuleNotFoundError:
            raise ConfigurationError(
                f"environment {env_id!r}: screens are resized by OpenCV, which is missing; install it with Warren's "
                f"extra: {pip()} install {requirement('atari')}"
            ) from None
        self._skip, self._stack, self._side, self._noops = frame_skip, frame_stack, resize, noop_start
        short = full_id.rpartition("/")[2].replace("-v", "_v")
        self._mirrored = short in MIRRORED if mirrored is None else mirrored
        self._emulators = [emulator(env_id, full_id, obs_type="grayscale_image", **kwargs) for _ in range(num_envs)]
        self._repeats = repeat_action_probability
        self.chance = Chance(num_envs, seed)
        self._drawing = [np.random.default_rng()] * num_envs  # the generator of each present game
        self._pressed = np.zeros((num_envs, PLAYERS), np.int64)  # actions of the last frame
        one = self._emulators[0]
        width, height = one.ale.getScreenDims()
        self._screens = np.empty((2, height, width, 1), np.uint8)  # the last two frames
        self._frames = np.zeros((num_envs, frame_stack, resize, resize), np.uint8)
        self._played = np.zeros(num_envs, np.int64)  # frames of the present game
        planes = frame_stack + (not self._mirrored)
        super().__init__(env_id, num_envs, (planes, resize, resize), len(one.action_mapping), images=True)
        if not self._mirrored:
            self._seen[1, :, -1] = 255

    def close(self) -> None:
        """Release the emulators."""
        for made in self._emulators:
            made.close()
        self._emulators = []

    def picture(self, index: int) -> np.ndarray:
        """Return the screen, uint8 [210, 160, 3]."""
        screen: np.ndarray = self._emulators[index].ale.getScreenRGB()
        return screen

    def action_text(self, index: int, action: int) -> str:
        """Return the emulator's name for `action`."""
        actions = importlib.import_module("ale_py").Action
        return str(actions(int(self._emulators[index].action_mapping[action])).name)

    def _begin(self, i: int) -> None:
        made = self._emulators[i]
        self.chance.begin(self._rows[i : i + 1])
        # Actions are repeated here: the emulator's own generator gets a seed only when it loads the ROM, in 90 ms.
        self._drawing[i] = drawing = np.random.default_rng(int(self.chance.seeds[i]))
        made.ale.reset_game()
        noops = int(drawing.integers(1, self._noops + 1)) if self._noops else 0
        self._pressed[i] = 0
        for _ in range(noops):
            made.ale.act(made.action_mapping[self._pressed[i]])
        self._played[i] = noops
        made.ale.getScreenGrayscale(self._screens[0])
        self._frames[i] = self._small(self._screens[0])  # the first frame, repeated
        self._show(i)

    def _move(
        self, first: list[int], second: list[int], reward: np.ndarray, done: np.ndarray, truncated: np.ndarray
    ) -> None:
        for i, both in enumerate(zip(first, second, strict=True)):
            reward[i], done[i], truncated[i] = self._move_one(i, both)

    def _move_one(self, i: int, actions: tuple[int, int]) -> tuple[np.ndarray, bool, bool]:
        made, ale = self._emulators[i], self._emulators[i].ale
        pressed, wanted, drawing = self._pressed[i], np.array(actions), self._drawing[i]
        gained = np.zeros(PLAYERS, np.float32)
        over = cut = False
        for frame in range(self._skip):
            np.copyto(pressed, wanted, where=drawing.random(PLAYERS) >= self._repeats)
            gained += ale.act(made.action_mapping[pressed])
            self._played[i] += 1
            over = bool(ale.game_over() or (ale.allLives() < 0).any())
            cut = not over and self._played[i] >= made.max_cycles
            if over or cut:
                break
            if (left := self._skip - 1 - frame) < 2:
                ale.getScreenGrayscale(self._screens[left])
        if not (over or cut):
            screen = np.maximum(*self._screens) if self._skip > 1 else self._screens[0]
            self._frames[i, :-1] = self._frames[i, 1:]
            self._frames[i, -1] = self._small(screen)
            self._show(i)
        ahead = (gained[0] - gained[1]) / 2
        return np.array([ahead, -ahead], np.float32), over or cut, cut

    def _small(self, screen: np.ndarray) -> np.ndarray:
        small: np.ndarray = self._cv2.resize(screen, (self._side, self._side), interpolation=self._cv2.INTER_AREA)
        return small

    def _show(self, i: int) -> None:
        frames = self._frames[i]
        self._seen[0, i, : self._stack] = frames
        self._seen[1, i, : self._stack] = frames[:, :, ::-1] if self._mirrored else frames
