"""Plays many games in turns at once between one learning policy and its opponents: trajectories and results come out.

    sampler = MatchSampler(games, policy, seed=1, unroll_length=16, tables=4)
    sampler.seat(0, Opponent("main@12", its_policy))      # games of table 0 that begin from now on are against it
    trajectory = sampler.collect(64)                      # 64 slots of the learning policy's decisions
    for result in sampler.pop_results(): ...              # who was met, and the return of every game

The N game slots are split into tables, each with one opponent at a time, as a league hands out matches. Decisions of
one step are batched by model: one forward pass for the learning policy, one for each opponent at the tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.checkpoints import fingerprint
from agents.networks import Memory
from agents.policies import Policy, SlotMemory
from agents.trajectories import Trajectory
from envs import TwoPlayerVectorEnv
from workers.rollout.game_log import GameLog, PlayedGame, Weights
from workers.rollout.match_result import MatchResult
from workers.rollout.sampler import load_into
from workers.rollout.trajectory_buffer import TrajectoryBuffer


@dataclass(frozen=True)
class Opponent:
    """Whom a table plays. `policy` None is the learning policy itself: it learns from both seats then."""

    tag: Hashable  # comes back with the results
    policy: Policy | None = None
    recorded: bool = False  # whether results against it hold the games themselves


class MatchSampler:
    """One process's games of one learning policy; games carry over from one `collect` to the next.

    A Sampler whose budget is in trajectories; each carries the version that it began with. In each slot the learning
    policy takes the two seats in turn, and at each table half of the slots begin in either, so that both are played
    equally often.
    """

    def __init__(
        self,
        games: TwoPlayerVectorEnv,
        policy: Policy,
        seed: int,
        unroll_length: int = 16,
        tables: int = 1,
        reward_scale: float = 1.0,
        max_age: int | None = None,
        player: str | None = None,
    ) -> None:
        """`reward_scale` multiplies the rewards in trajectories, not the results. `player`: the learning policy's name,
        where games are recorded; None: nothing is kept of any.

        Experience that is more than `max_age` versions old is dropped (`pop_expired`), None: never.
        """
        self.games, self.policy = games, policy
        self.version = -1
        self.decisions = 0  # of the learning policy, since the start
        self.num_tables = tables
        slots = np.arange(games.num_envs)
        self.table = slots % tables  # [N]
        self._home = (slots // tables % 2).astype(np.int64)  # [N]: the seat of the learning policy
        self._slots = slots
        self._reward_scale = np.float32(reward_scale)
        self._generator = torch.Generator().manual_seed(seed)
        mirror = Opponent("self")
        self._opponents: dict[int, Opponent] = {0: mirror}  # those in play, by a number of their own
        self._numbers = 1
        self._invited = np.zeros(tables, np.int64)  # the opponent of each table's next games
        self._met = np.zeros(games.num_envs, np.int64)  # [N]: the opponent of the game under way
        self._buffer = TrajectoryBuffer(2 * games.num_envs, unroll_length, policy.spec(True), max_age)
        # Of each seat: in a league all networks are built by the same settings, so one memory fits whoever sits there.
        self._memory = SlotMemory(policy.initial_memory(2 * games.num_envs))
        self._results: dict[int, list[np.ndarray]] = {}
        self._games: dict[int, list[PlayedGame]] = {}  # of opponents that are recorded
        self._episodes: list[np.ndarray] = []
        self._turn = games.reset()
        self._player = player or ""
        self._log = GameLog(games, seed) if player is not None else None
        self._weights = Weights(self._player, self.version, 0)
        self._kept = np.zeros(games.num_envs, np.bool_)  # [N]: whether the game under way is recorded
        self._fresh = True  # no move made: opponents may still be seated without waiting for a game's end

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """As Sampler.load; experience that is too old for `version` is dropped."""
        load_into(self.policy, weights, version, behaviour)
        self.version = version
        self._buffer.renew(version)
        if self._log is not None:
            self._weights = Weights(self._player, version, fingerprint(self.policy))

    def pop_expired(self) -> int:
        """Decisions that were too old to learn from and were dropped since the last call."""
        return self._buffer.pop_expired()

    def seat(self, table: int, opponent: Opponent) -> None:
        """Let `table` play `opponent`: its games under way are played to their end first."""
        number = next((n for n, known in self._opponents.items() if known == opponent), None)
        if number is None:
            number, self._numbers = self._numbers, self._numbers + 1
            self._opponents[number] = opponent
        self._invited[table] = number
        if self._fresh:
            self._met[self.table == table] = number
            self._look_what_is_kept()

    def restart(self) -> None:
        """Drop all games and all experience: the policy has become another one. Results that were made stay."""
        self._buffer.clear()
        self._memory.begin()
        self._turn = self.games.reset()
        if self._log is not None:
            self._log.restart()
        self._met = self._invited[self.table]
        self._look_what_is_kept()
        self._fresh = True

    def collect(self, budget: int) -> Trajectory:
        """Play until `budget` trajectories are complete: T = unroll_length, N = budget."""
        while self._buffer.ready < budget:
            self.advance()
        return self.take(budget)

    @property
    def ready(self) -> int:
        """Trajectories that are complete."""
        return self._buffer.ready

    def take(self, num_trajectories: int) -> Trajectory:
        """The first `num_trajectories` of the `ready` trajectories."""
        episodes = np.concatenate([*self._episodes, np.zeros((0, 2), np.float32)])
        self._episodes.clear()
        return self._buffer.take(num_trajectories, episodes)

    def pop_results(self) -> list[MatchResult]:
        """Games that ended since the last call, a result for each opponent that was met."""
        results = [
            MatchResult(self._opponents[number].tag, np.concatenate(returns), tuple(self._games.get(number, ())))
            for number, returns in self._results.items()
        ]
        self._results.clear()
        self._games.clear()
        in_play = {*self._met.tolist(), *self._invited.tolist()}
        self._opponents = {n: opponent for n, opponent in self._opponents.items() if n in in_play}
        return results

    def in_play(self) -> set[Hashable]:
        """Tags of the opponents that more games will end against, as things stand."""
        return {self._opponents[number].tag for number in {*self._met.tolist(), *self._invited.tolist()}}

    def advance(self) -> bool:
        """Make one move in every game; whether any game ended."""
        turn, seats = self._turn, 2 * self._slots + self._turn.to_move
        mirrored = self._is_mirror(self._met)
        mine = (turn.to_move == self._home) | mirrored
        action = np.empty(self.games.num_envs, np.int64)
        rows = np.flatnonzero(mine)
        if rows.size:
            observation, mask = turn.observation[rows], turn.action_mask[rows]
            before = self._memory.of(seats[rows])
            taken, extras = self._step(self.policy, seats[rows], before, observation, mask)
            action[rows] = taken
            decision = {"observation": observation, "action": taken, "action_mask": mask, "extras": extras}
            remembered = {name: part.cpu().numpy() for name, part in before.items()}
            self._buffer.decide(seats[rows], decision, remembered, self.version)
            self.decisions += rows.size
        if rows.size < len(mine):
            theirs = np.flatnonzero(~mine)
            for policy, rows in self._by_model(theirs):
                observation, mask = turn.observation[rows], turn.action_mask[rows]
                before = self._memory.of(seats[rows])
                action[rows], _ = self._step(policy, seats[rows], before, observation, mask, value=False)
        if self._log is not None:
            self._log.moved(action, self._weights)
        self._turn = self.games.step(action)
        self._fresh = False
        self._buffer.earn(self._turn.reward.ravel() * self._reward_scale)
        ended = bool(self._turn.done.any())
        if ended:
            self._finish()
        return ended

    def _step(
        self,
        policy: Policy,
        seats: np.ndarray,
        memory: Memory,
        observation: np.ndarray,
        mask: np.ndarray,
        value: bool = True,
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(actions, extras) of `policy` in these seats, which remember `memory`."""
        drawn_by: dict[str, Any] = {"generator": self._generator}
        if self._log is not None and (kept := self._kept[seats // 2]).any():
            noise = torch.empty(mask.shape).exponential_(generator=self._generator).numpy()
            noise[kept] = self._log.noise(seats[kept] // 2)
            drawn_by = {"noise": noise}
        action, extras, memory = policy.step(observation, memory, action_mask=mask, value=value, **drawn_by)
        self._memory.keep(seats, memory)
        return action, extras

    def _finish(self) -> None:
        finished = self.games.pop_finished()
        slots, home = finished.index, self._home[finished.index]
        seats = np.concatenate([2 * slots, 2 * slots + 1])
        self._buffer.end(seats)
        self._memory.begin(seats)
        returns = finished.returns[np.arange(len(slots)), home]
        met = self._met[slots]
        for number in np.unique(met):
            self._results.setdefault(int(number), []).append(returns[met == number])
        if self._log is not None:
            for number, game in zip(met.tolist(), self._log.pop(finished, home, self._kept[slots]), strict=True):
                if game is not None:
                    self._games.setdefault(number, []).append(game)
        self._episodes.append(np.stack([returns, finished.length.astype(np.float32)], axis=1))
        self._home[slots] = 1 - home
        self._met[slots] = self._invited[self.table[slots]]
        self._look_what_is_kept()

    def _look_what_is_kept(self) -> None:
        if self._log is not None:
            self._kept = np.isin(self._met, [n for n, opponent in self._opponents.items() if opponent.recorded])

    def _by_model(self, rows: np.ndarray) -> Iterator[tuple[Policy, np.ndarray]]:
        """`rows` by the model that plays them: opponents with the same weights share a forward pass."""
        met = self._met[rows]
        models: dict[int, tuple[Policy, list[int]]] = {}
        for number in np.unique(met).tolist():
            policy = self._opponents[number].policy
            assert policy is not None  # else the rows would be the learning policy's
            models.setdefault(id(policy), (policy, []))[1].append(number)
        for policy, numbers in models.values():
            yield policy, rows[np.isin(met, numbers)] if len(models) > 1 else rows

    def _is_mirror(self, numbers: np.ndarray) -> np.ndarray:
        mirrors = [number for number, opponent in self._opponents.items() if opponent.policy is None]
        return np.isin(numbers, mirrors)
