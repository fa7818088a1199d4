"""One game of FightingICE after another, in lock-step: the game advances by a frame when each of our players has sent
its keys."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from envs.fightingice.commands import ACTIONS, FRAMES, typed
from envs.fightingice.game import Game
from envs.fightingice.observation import observation
from envs.fightingice.protocol import (
    GAME_END,
    INITIALIZE,
    OVER,
    PLAYER,
    PROCESSING,
    ROUND_END,
    STATE,
    Line,
    Lost,
    message,
)
from warren.errors import ConfigurationError, UnknownName

CHARACTERS = ("ZEN", "GARNET", "LUD")
REWARDS = ("damage", "result")
RANDOM, DUMMY = "random", "dummy"  # opponents other than the game's AIs
STILL = "Keyboard"  # the game's name for a player with a keyboard; there is none, so it stands still
NAMES = ("warren-1", "warren-2")  # our players' names; the game knows its own by the names in data/ai


class Step(NamedTuple):
    """A step's result: `observations` float32 [sides, fields], and of both players `rewards` and `damage` float32 [2].

    `damage` is what a player took, as a share of its hit points at a round's beginning.
    """

    observations: np.ndarray
    rewards: np.ndarray
    damage: np.ndarray
    over: bool


class Match:
    """Games of `character`, for one agent against `opponent`, or for two (`opponent` None).

    `opponent`: "random", whose actions the caller draws, "dummy", which stands still, or one of the game's AIs, by its
    name in data/ai.
    An action takes `frame_skip` frames of 1/60 s. With `delay`, observations are 15 frames old, as in the competitions.
    `rewards`: "damage", the other player's loss minus one's own, as shares of all hit points, or "result", 1, 0 or -1
    at the end, by rounds won. Other options are those of Game. Raises UnknownName and ConfigurationError.
    """

    def __init__(
        self,
        character: str,
        opponent: str | None,
        *,
        opponent_character: str | None = None,
        rewards: str = "damage",
        frame_skip: int = FRAMES,
        delay: bool = False,
        rounds: int = 1,
        frames: int = 3600,
        hp: int = 400,
        memory: int = 384,
        game: str | None = None,
        address: str | None = None,
    ) -> None:
        for name in (character, opponent_character or character):
            if name.upper() not in CHARACTERS:
                raise UnknownName(
                    "environment", f"fightingice:{name}", [f"fightingice:{one.lower()}" for one in CHARACTERS]
                )
        problems = []
        if rewards not in REWARDS:
            problems.append(f"fightingice: rewards={rewards!r} is not one of {', '.join(REWARDS)}")
        for setting, value, least in (
            ("frame_skip", frame_skip, FRAMES), ("rounds", rounds, 1), ("frames", frames, 60), ("hp", hp, 1),
            ("memory", memory, 128),
        ):  # fmt: skip
            if value < least:
                problems.append(f"fightingice: {setting}={value} must be at least {least}")
        if problems:
            raise ConfigurationError(problems)
        self.sides = 2 if opponent in (None, RANDOM) else 1
        self._characters = (character.upper(), (opponent_character or character).upper())
        self._players = (NAMES[0], NAMES[1] if self.sides == 2 else STILL if opponent == DUMMY else str(opponent))
        self._rewards, self._frame_skip, self._delay, self._rounds, self._frames = (
            rewards, frame_skip, delay, rounds, frames,
        )  # fmt: skip
        self._game = Game(game, address, memory=memory, frames=frames, rounds=rounds, hp=hp)
        if self.sides == 1 and opponent != DUMMY and opponent not in (known := self._game.opponents()):
            self._game.close()
            raise UnknownName(
                f"environment 'fightingice:{character}': opponent", str(opponent), [RANDOM, DUMMY, *known]
            )
        self._lines: list[Line] = []
        self._run: Line | None = None
        self._seen: list[Any] = []  # the last state of each of our players
        self._max_hps, self._hps, self._won = (hp, hp), [hp, hp], 0
        self.over = True

    def reset(self) -> np.ndarray:
        """Begin a game; return the observations of our players, float32 [sides, fields]."""
        if not self.over:
            self._leave()
        try:
            self._run = self._game.run(self._characters, self._players)
            self._lines = [self._game.connect() for _ in range(self.sides)]
            for player, line in enumerate(self._lines):
                line.say(message("InitializeRequest", player_number=player == 0, player_name=NAMES[player]), PLAYER)
            self._seen = [self._state(line) for line in self._lines]
            if any(state.state_flag != INITIALIZE for state in self._seen):
                raise Lost(f"it begins a game with state_flag={self._seen[0].state_flag}, not {INITIALIZE}")
            told = self._seen[0].game_data.max_hps
            self._max_hps = (told[0], told[1]) if len(told) == 2 else self._max_hps
            self._hps, self._won, self.over = list(self._max_hps), 0, False
            self._seen = [self._state(line) for line in self._lines]
        except Lost as error:
            raise self._game.why(error) from error
        return self._observations()

    def step(self, actions: list[int]) -> Step:
        """Play a step by one action of each of our players."""
        return step_together([self], [actions])[0]

    def stepping(self, actions: list[int]) -> Generator[None, None, Step]:
        """Play a step as `step` does, and yield whenever keys were sent and the game computes the next frame."""
        keys = [
            typed(ACTIONS[action], self._faces_right(player), self._frame_skip) for player, action in enumerate(actions)
        ]
        damage = np.zeros(2, np.float32)  # damage that each player took
        try:
            for frame in range(self._frame_skip):
                for player, line in enumerate(self._lines):
                    line.say(keys[player][frame])
                yield
                damage += self._next()
                if self.over:
                    self._end()
                    break
        except Lost as error:
            self.over = True
            self._hang_up()
            raise self._game.why(error) from error
        if self._rewards == "damage":
            reward = float(damage[1] - damage[0])
        else:
            reward = float(np.sign(self._won)) if self.over else 0.0
        return Step(self._observations(), np.array([reward, -reward], np.float32), damage, self.over)

    def close(self) -> None:
        """End the game, if it was started here."""
        self._hang_up()
        self._game.close()

    def _next(self) -> np.ndarray:
        """Read the next frame; return the damage that each player took in it, as a share of its hit points."""
        took = np.zeros(2, np.float32)
        while True:
            states = [self._state(line) for line in self._lines]
            flag = states[0].state_flag
            if flag in (ROUND_END, GAME_END):
                left = list(states[0].round_result.remaining_hps)
                took += self._loss(left)
                self._won += int(np.sign(left[0] - left[1]))
                self._hps = list(self._max_hps)
                if flag == GAME_END:
                    self.over = True
                    return took
                continue
            if flag == PROCESSING:
                self._seen = states
                now = (
                    states[0].non_delay_frame_data
                    if states[0].HasField("non_delay_frame_data")
                    else states[0].frame_data
                )
                if not now.empty_flag and len(now.character_data) == 2:
                    took += self._loss([character.hp for character in now.character_data])
                return took

    def _loss(self, left: list[int]) -> np.ndarray:
        lost = [max(before, 0) - max(now, 0) for before, now in zip(self._hps, left, strict=True)]
        self._hps = left
        return np.array([one / max(most, 1) for one, most in zip(lost, self._max_hps, strict=True)], np.float32)

    @staticmethod
    def _state(line: Line) -> Any:
        if (said := line.byte()) != STATE:
            raise Lost(f"it ended the game by byte {said[0]}")
        return line.hear("PlayerGameState")

    def _frame(self, player: int) -> Any:
        state = self._seen[player]
        if self._delay or not state.HasField("non_delay_frame_data"):
            return state.frame_data
        return state.non_delay_frame_data

    def _faces_right(self, player: int) -> bool:
        characters = self._frame(player).character_data
        return bool(characters[player].front) if len(characters) == 2 else player == 0

    def _observations(self) -> np.ndarray:
        return np.stack(
            [
                observation(self._frame(player), player, self._max_hps, self._frames, self._rounds)
                for player in range(self.sides)
            ]
        )

    def _end(self) -> None:
        """Wait until the game has closed all connections with its final byte."""
        for line in (*self._lines, self._run):
            if line is not None and (said := line.byte()) != OVER:
                raise Lost(f"it said byte {said[0]} after the game's end")
        self._hang_up()

    def _leave(self) -> None:
        """Leave a game that is not over: replace a process of our own; play another's to its end, standing still."""
        if self._game.own:
            self._hang_up()
            self._game.restart()
            return
        while not self.over:
            self.step([0] * self.sides)

    def _hang_up(self) -> None:
        for line in (*self._lines, self._run):
            if line is not None:
                line.close()
        self._lines, self._run = [], None


def step_together(matches: Sequence[Match], actions: Sequence[list[int]]) -> list[Step]:
    """Play a step in each of several games, which compute their frames at the same time.

    A game answers a frame's keys after 2 ms, and sleeps for half of them.
    """
    playing = [match.stepping(each) for match, each in zip(matches, actions, strict=True)]
    steps: dict[int, Step] = {}
    while len(steps) < len(playing):
        for i, one in enumerate(playing):
            if i not in steps:
                try:
                    next(one)
                except StopIteration as end:
                    steps[i] = end.value
    return [steps[i] for i in range(len(playing))]
