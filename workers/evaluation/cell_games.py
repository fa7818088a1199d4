"""Games of two players in fixed seats, or as pairs: each deal in both seatings, and the mean return of the two games.

In a pair, cards that favour a seat favour both players in turn. So the mean of a pair varies less than the mean of two
separate games. The two games of a pair depend on each other, so intervals count pairs, not games.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from agents.networks import Memory
from agents.policies import ActionBatch, SlotMemory
from envs import TwoPlayerVectorEnv
from workers.rollout.games.game_log import GameLog, Recording


class Player(Protocol):
    """A Policy, or anything that steps like one."""

    def initial_memory(self, n: int) -> Memory: ...

    def step(
        self,
        observation: np.ndarray,
        memory: Memory,
        mode: str = "sample",
        action_mask: np.ndarray | None = None,
        *,
        generator: torch.Generator | None = None,
        value: bool = True,
        noise: np.ndarray | None = None,
    ) -> ActionBatch: ...


class Uniform:
    """Plays every legal action equally often: the reference that needs no training."""

    def initial_memory(self, n: int) -> Memory:
        return {}

    def step(
        self,
        observation: np.ndarray,
        memory: Memory,
        mode: str = "sample",
        action_mask: np.ndarray | None = None,
        *,
        generator: torch.Generator | None = None,
        value: bool = True,
        noise: np.ndarray | None = None,
    ) -> ActionBatch:
        """Return a legal action for each observation, int64 [N]."""
        assert action_mask is not None
        chance = torch.rand(action_mask.shape, generator=generator).numpy() if noise is None else noise
        return ActionBatch(np.where(action_mask, chance, -1.0).argmax(axis=1), {}, memory)


def play(
    games: TwoPlayerVectorEnv,
    first: Player,
    second: Player,
    rounds: int,
    generator: torch.Generator,
    recording: Recording | None = None,
    seeds: np.ndarray | None = None,
    side: int = 0,
) -> np.ndarray:
    """Play `first` as team `side` against `second` as all others; return the gains of `first`, float32 [rounds * N].

    Each slot plays a fixed number of games: stopping at a total number of games would favour short ones. The returns
    are in the order of rounds, and of slots within each. `recording`: all games are added to it. `seeds` int64 [N]: the
    seeds of chance in each slot's first game.
    """
    left = np.full(games.num_envs, rounds)
    returns = np.zeros((rounds, games.num_envs), np.float32)
    turn = games.reset(seeds)
    games.pop_finished()
    players = [first if team == side else second for team in games.team_of]
    memories = [SlotMemory(player.initial_memory(games.num_envs)) for player in players]
    log = None if recording is None else GameLog(games, recording.seed)
    while left.any():
        action = turn.action_mask.argmax(axis=1)  # any legal move, in slots that have played all their games
        for seat, player in enumerate(players):
            rows = np.flatnonzero((left > 0) & (turn.to_move == seat))
            if rows.size:
                observation, mask = turn.observation[rows], turn.action_mask[rows]
                known = memories[seat].of(rows)
                noise = None if log is None else log.noise(rows)
                acted = player.step(observation, known, action_mask=mask, generator=generator, value=False, noise=noise)
                action[rows] = acted.action
                memories[seat].keep(rows, acted.memory)
        if log is not None and recording is not None:
            log.moved(action, recording.weights)
        turn = games.step(action)
        if turn.done.any():
            finished = games.pop_finished()
            for memory in memories:
                memory.begin(finished.index)
            counted = left[finished.index] > 0
            slots = finished.index[counted]
            returns[rounds - left[slots], slots] = games.gained(finished.returns[counted], side)
            left[slots] -= 1
            if log is not None and recording is not None:
                kept = log.pop(finished, np.zeros(len(counted), np.int64), counted)
                recording.games += [game for game in kept if game is not None]
    return returns.ravel()


def play_pairs(
    games: TwoPlayerVectorEnv,
    first: Player,
    second: Player,
    rounds: int,
    generator: torch.Generator,
    recording: Recording | None = None,
) -> np.ndarray:
    """Play each deal in both seatings; return the mean gain of `first` over the two games, float32 [rounds * N].

    If a game has no seeds of its own, only the seats are swapped. `recording`: the games with `first` in seat 0.
    """
    found = []
    for _ in range(rounds):
        drawn = torch.randint(1 << 62, (games.num_envs,), generator=generator).numpy()
        seeds = None if games.chance is None else drawn
        in_first = play(games, first, second, 1, generator, recording, seeds)
        found.append((in_first - play(games, second, first, 1, generator, None, seeds)) / 2.0)
    return np.concatenate(found)
