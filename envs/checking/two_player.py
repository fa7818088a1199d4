"""A few thousand random moves of a game of two players or more, checked for everything that would disturb a league."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np

from envs.checking import faults, repeatable
from envs.checking.budget import budget, watch
from envs.checking.held import check_copies, check_growth, memory
from envs.checking.report import Report
from envs.construct import blame
from envs.sources import make_two_player
from envs.two_player.vector_env import FinishedGames, Turn, TwoPlayerVectorEnv

SECONDS = 60.0  # s of the long walk
GAMES = 8  # played at once
DTYPES = {"to_move": np.int8, "action_mask": np.bool_, "reward": np.float32, "done": np.bool_, "truncated": np.bool_}


def check(report: Report, env_id: str, kwargs: Mapping[str, Any], steps: int) -> None:
    """Fill `report` with the findings of `steps` random moves of the game."""
    watch()
    with report.checking("made"):
        started = time.perf_counter()
        games = make_two_player(env_id, GAMES, 0, **kwargs)
        report.ok("made", f"{GAMES} games in {time.perf_counter() - started:.2g} s")
        shape = list(games.single_observation_space.shape or ())
        dtype = games.single_observation_space.dtype
        report.ok("spaces", f"{_players(games)}; observations {dtype} {shape}; {games.num_actions} actions")
        try:
            with report.checking("moves"):
                _Walk(report, env_id, games).take(max(steps // GAMES, 1))
        finally:
            games.close()
    if report.problems:
        return
    with report.checking("seeds"):
        repeatable.check(report, lambda: _Recorded(env_id, kwargs))
    with report.checking("leaks"):
        check_copies(report, lambda: _use(env_id, kwargs))


class _Walk:
    """GAMES games, played at random for long, with every turn checked."""

    def __init__(self, report: Report, env_id: str, games: TwoPlayerVectorEnv) -> None:
        self.report, self.env_id, self.games = report, env_id, games
        self.legal = np.zeros(games.num_actions, np.bool_)
        self.most_legal, self.least_legal = 0, games.num_actions
        self.moves = np.zeros(games.players, np.int64)
        self.truncated = 0
        self.noted: set[str] = set()

    def take(self, steps: int) -> None:
        games, env_id = self.games, self.env_id
        generator = np.random.default_rng(0)
        with blame(f"environment {env_id!r}: reset()"):
            turn = games.reset()
        self._look(turn, "reset()")
        stepping, taken, quarter = 0.0, 0, max(steps // 4, 1)
        measured: list[int] = []
        finished: list[FinishedGames] = []
        for step in budget(steps, SECONDS):
            action = (generator.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1)
            kept = [np.copy(array) for array in astuple(turn)]
            before = time.perf_counter()
            with blame(f"environment {env_id!r}: step(action={action.tolist()})"):
                after = games.step(action)
            stepping, taken = stepping + time.perf_counter() - before, taken + GAMES
            self._look(after, f"step(action={action.tolist()})")
            self._is_kept(turn, kept)
            turn = after
            finished.append(games.pop_finished())
            if step % quarter == quarter - 1:
                measured.append(memory())
        self._say(taken, finished)
        if len(measured) >= 4:
            check_growth(self.report, measured[:4], taken)
        self.report.ok("speed", f"{taken / stepping:,.0f} moves/s, {GAMES} games at once")

    def _look(self, turn: Turn, doing: str) -> None:
        shape = self.games.single_observation_space.shape or ()
        faults.require_none(
            faults.of_turn(turn, GAMES, shape, self.games.num_actions, self.games.players), self.env_id, doing
        )
        for name, dtype in {**DTYPES, "observation": self.games.single_observation_space.dtype}.items():
            if (found := np.asarray(getattr(turn, name)).dtype) != dtype:
                self._once(f"{doing} gave a Turn whose {name} is {found}; it should be {np.dtype(dtype)}", "dtypes")
        if (turn.truncated & ~turn.done).any():
            self._once(f"{doing} gave a Turn that is truncated and not done", "ends", problem=True)
        counts = turn.action_mask.sum(axis=1)
        self.least_legal = min(self.least_legal, int(counts.min()))
        self.most_legal = max(self.most_legal, int(counts.max()))
        self.legal |= turn.action_mask.any(axis=0)
        self.moves += np.bincount(turn.to_move, minlength=self.games.players)[: self.games.players]
        self.truncated += int(turn.truncated.sum())

    def _is_kept(self, turn: Turn, kept: list[np.ndarray]) -> None:
        for field, before, now in zip(fields(turn), kept, astuple(turn), strict=True):
            if not np.array_equal(before, now):
                self._once(
                    f"step() wrote into {field.name} of the Turn before, which is its receiver's; make a new array",
                    "turns", problem=True,
                )  # fmt: skip

    def _once(self, text: str, check: str, *, problem: bool = False) -> None:
        if check not in self.noted:
            self.noted.add(check)
            (self.report.problem if problem else self.report.note)(check, text)

    def _say(self, taken: int, finished: list[FinishedGames]) -> None:
        report = self.report
        lengths = np.concatenate([games.length for games in finished])
        returns = np.concatenate([games.returns for games in finished])
        if not len(lengths):
            report.note("moves", f"{taken:,} random moves, and no game ended; a league counts games that end")
        else:
            report.ok(
                "moves",
                f"{taken:,} random moves; games: {len(lengths)} of {lengths.min()} to {lengths.max()} moves, "
                f"{self.truncated} of them cut off (truncated)",
            )
            results = Counter(np.sign(returns[:, 0]).astype(int).tolist())
            largest = float(np.abs(returns).max())
            known = self.games.max_return
            first = (
                f"won {results[1]}, drew {results[0]}, lost {results[-1]}"
                if self.games.zero_sum
                else (f"got {returns[:, 0].mean():g} a game")
            )
            summed = ", zero-sum" if self.games.zero_sum else ", general sum"
            report.ok("returns", f"the first player {first}; up to {largest:g}{summed}")
            if known is not None and largest > known * (1 + 1e-6):
                report.problem("returns", f"a game's return was {largest:g}; max_return says {known:g} is the largest")
            if largest == 0:
                report.note("returns", "every game is a draw: there is nothing to win at random")
        never = np.flatnonzero(~self.legal)
        report.ok("masks", f"{self.least_legal} to {self.most_legal} legal actions a move")
        if len(never):
            report.note("masks", f"{len(never)} of {len(self.legal)} actions were never legal: {faults.few(never)}")
        if not self.moves.all():
            moved = ", ".join(map(str, np.flatnonzero(self.moves)))
            report.note("players", f"only player {moved} ever moved")


class _Recorded(repeatable.Play):
    """Two games whose turns are compared with those of others; the constructor seeds them."""

    def __init__(self, env_id: str, kwargs: Mapping[str, Any]) -> None:
        self.env_id, self.kwargs = env_id, kwargs
        self.games: TwoPlayerVectorEnv | None = None

    def reset(self, seed: int) -> bytes:
        self.close()
        self.games = make_two_player(self.env_id, 2, seed, **self.kwargs)
        self.generator = np.random.default_rng(7)
        self.turn = self.games.reset()
        return _digest(self.turn)

    def step(self) -> bytes:
        assert self.games is not None
        self.turn = self.games.step(
            (self.generator.random(self.turn.action_mask.shape) * self.turn.action_mask).argmax(axis=1)
        )
        return _digest(self.turn)

    def close(self) -> None:
        if self.games is not None:
            self.games.close()
        self.games = None


def _players(games: TwoPlayerVectorEnv) -> str:
    teams = "" if len(games.teams) == games.players else f" in {len(games.teams)} teams"
    return f"{'two' if games.players == 2 else games.players} players{teams}"


def _digest(turn: Turn) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for array in astuple(turn):
        found.update(np.asarray(array).tobytes())
    return found.digest()


def _use(env_id: str, kwargs: Mapping[str, Any]) -> None:
    play = _Recorded(env_id, kwargs)
    play.reset(0)
    for _ in budget(10, repeatable.SECONDS):
        play.step()
    play.close()
