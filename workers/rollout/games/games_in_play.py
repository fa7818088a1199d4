"""State of N turn-based games that the caller steps: seating, pending decisions, and the trajectories they produce.

    play = GamesInPlay(64, policy, unroll_length=16, tables=4)
    play.begin(games.reset())
    while True:
        (action,) = decide([play], generator)               # of several at once: one forward pass for each model
        turn = games.step(action)
        ended = play.follow(turn, games.pop_finished())

The N game slots are split into tables, each with one opponent at a time. In each slot the learning policy takes the two
seats in turn, half of a table's slots begin in either; except against opponents that come for one seat.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from agents.checkpoints import fingerprint
from agents.networks import Memory
from agents.policies import Policy, SeatMemories
from agents.trajectories import Trajectory
from envs import Turn
from envs.two_player.vector_env import FinishedGames
from workers.rollout.games.game_log import GameLog, PlayedGame, Weights
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.trajectory_buffer import TrajectoryBuffer


@dataclass(frozen=True)
class Opponent:
    """The opponent of a table. `policy` None is the learning policy itself: it learns from both seats then."""

    tag: Hashable  # comes back with the results
    policy: Policy | None = None
    recorded: bool = False  # whether results against it hold the games themselves
    seat: int | None = None  # the one that it takes, 0 or 1; None: either in turn


@dataclass(slots=True)
class DecisionRequest:
    """Decisions that one model is to make. `learns`: whether it learns from them; `value`: whether from its value."""

    policy: Policy
    learns: bool
    value: bool
    rows: np.ndarray  # int64 [K]: of which games
    seats: np.ndarray  # int64 [K]: 2 * game + seat
    observation: np.ndarray  # [K, ...]
    action_mask: np.ndarray  # bool [K, A]
    memory: Memory  # [K, ...]


class GamesInPlay:
    """Games of one learning policy; `version` is that of its weights."""

    def __init__(
        self,
        num_games: int,
        policy: Policy,
        unroll_length: int = 16,
        tables: int = 1,
        reward_scale: float = 1.0,
        max_age: int | None = None,
        log: GameLog | None = None,
        player: str = "",
        fields: Collection[str] | None = None,
        minimax: float = 0.0,
    ) -> None:
        """`reward_scale` multiplies the rewards in trajectories, not the results. `log` of the games where they are
        recorded, under the name of `player`. `fields`: what the algorithm asks for, as its Needs say.

        Experience that is more than `max_age` versions old is dropped (`pop_expired`), None: never.

        `minimax`: each of the policy's decisions is also rewarded by -minimax V, with V the value that its opponent
        gives to its own next position (Bairamian et al. 2023: alpha gamma). Not in mirror matches, and not in results.
        """
        self.policy = policy
        self.version = -1
        self.decisions = 0  # of the learning policy, since the start
        self.num_tables = tables
        slots = np.arange(num_games)
        self.table = slots % tables  # [N]
        self._turns = (slots // tables % 2).astype(np.int64)  # [N]: the seat that is its turn
        self._home = self._turns.copy()  # [N]: the seat of the learning policy
        self._slots = slots
        self._reward_scale = np.float32(reward_scale)
        mirror = Opponent("self")
        self._opponents: dict[int, Opponent] = {0: mirror}  # those in play, by a number of their own
        self._numbers = 1
        self._invited = np.zeros(tables, np.int64)  # the opponent of each table's next games
        self._met = np.zeros(num_games, np.int64)  # [N]: the opponent of the game under way
        spec = policy.spec(True, fields=fields)
        self._values_steps = spec.values_steps
        self._buffer = TrajectoryBuffer(2 * num_games, unroll_length, spec, max_age)
        self._memory = SeatMemories(2 * num_games)
        self._results: dict[int, list[np.ndarray]] = {}
        self._games: dict[int, list[PlayedGame]] = {}  # of opponents that are recorded
        self._episodes: list[np.ndarray] = []
        self._turn: Turn | None = None  # None: all games are to begin
        self._action = np.zeros(num_games, np.int64)
        self._minimax = minimax
        self._unanswered = np.zeros(num_games, np.bool_)  # [N]: whether the opponent has not moved since our decision
        self._player, self._log = player, log
        self._weights = Weights(player, self.version, 0)
        self._kept = np.zeros(num_games, np.bool_)  # [N]: whether the game under way is recorded
        self._fresh = True  # no move made: opponents may still be seated without waiting for a game's end

    def renew(self, version: int) -> None:
        """Drop experience that is too old for weights of `version`, which the learning policy has now."""
        self.version = version
        self._buffer.renew(version)
        if self._log is not None:
            self._weights = Weights(self._player, version, fingerprint(self.policy))

    def pop_expired(self) -> int:
        """Return how many decisions were dropped as too old since the last call."""
        return self._buffer.pop_expired()

    def seat(self, table: int, opponent: Opponent) -> None:
        """Let `table` play `opponent`: its games under way are played to their end first."""
        number = next((n for n, known in self._opponents.items() if known == opponent), self._numbers)
        self._numbers = max(self._numbers, number + 1)
        self._opponents[number] = opponent
        self._invited[table] = number
        if self._fresh:
            self._meet(np.flatnonzero(self.table == table))

    def restart(self) -> None:
        """Drop all games and experience, but no results: the policy has become another one. `begin` follows."""
        self._buffer.clear()
        self._memory.begin()
        self._unanswered[:] = False
        self._turn = None
        self._meet(self._slots)
        self._fresh = True

    @property
    def begun(self) -> bool:
        """Return True while games are under way."""
        return self._turn is not None

    def begin(self, turn: Turn) -> None:
        """Begin all games anew with this first turn."""
        self._turn = turn
        if self._log is not None:
            self._log.restart()

    @property
    def ready(self) -> int:
        """Number of complete trajectories."""
        return self._buffer.ready

    def take(self, num_trajectories: int) -> Trajectory:
        """Return the first `num_trajectories` of the `ready` trajectories."""
        episodes = np.concatenate([*self._episodes, np.zeros((0, 2), np.float32)])
        self._episodes.clear()
        return self._buffer.take(num_trajectories, episodes)

    def pop_results(self) -> list[MatchResult]:
        """Return the games that ended since the last call, one result per opponent met."""
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
        """Return the tags of opponents that are met now, or in the next games."""
        return {self._opponents[number].tag for number in {*self._met.tolist(), *self._invited.tolist()}}

    # A move in every game.

    def requests(self) -> Iterator[DecisionRequest]:
        """Yield the pending decisions, by model."""
        assert self._turn is not None
        mine = (self._turn.to_move == self._home) | self._is_mirror(self._met)
        rows = np.flatnonzero(mine)
        if rows.size:
            yield self._request(self.policy, rows, learns=True)
        if rows.size < len(mine):
            for policy, rows in self._by_model(np.flatnonzero(~mine)):
                yield self._request(policy, rows, learns=False)

    def take_decisions(
        self, request: DecisionRequest, action: np.ndarray, extras: dict[str, np.ndarray], memory: Memory
    ) -> None:
        """Take the decisions of `request`, arrays [K, ...]."""
        self._memory.keep(request.policy, request.seats, memory)
        self._action[request.rows] = action
        if not request.learns:
            if self._minimax:
                self._reward_by_value(request, extras["value"])
            return
        decision = {
            "observation": request.observation, "action": action, "action_mask": request.action_mask, "extras": extras
        }  # fmt: skip
        remembered = {name: part.cpu().numpy() for name, part in request.memory.items()}
        self._buffer.decide(request.seats, decision, remembered, self.version)
        self.decisions += request.rows.size
        self._unanswered[request.rows] = True

    def _reward_by_value(self, request: DecisionRequest, value: np.ndarray) -> None:
        """Reward decisions by the `value` [K] that the opponents' next positions have for them, once for each."""
        answers = self._unanswered[request.rows]
        reward = np.zeros(2 * len(self._slots), np.float32)
        reward[request.seats[answers] ^ 1] = -self._minimax * value[answers]
        self._buffer.earn(reward)
        self._unanswered[request.rows] = False

    def moves(self) -> np.ndarray:
        """Return the move in every game, int64 [N], once all are decided."""
        action, self._action = self._action, np.empty_like(self._action)
        if self._log is not None:
            self._log.moved(action, self._weights)
        self._fresh = False
        return action

    def noise(self, request: DecisionRequest, generator: torch.Generator) -> np.ndarray | None:
        """Return the noise float32 [K, A] that draws these decisions; None where no game among them is recorded."""
        if self._log is None or not (kept := self._kept[request.rows]).any():
            return None
        noise: np.ndarray = torch.empty(request.action_mask.shape).exponential_(generator=generator).numpy()
        noise[kept] = self._log.noise(request.rows[kept])
        return noise

    def follow(self, turn: Turn, finished: FinishedGames | None) -> bool:
        """Take what followed the moves; return True where games `finished`."""
        self._turn = turn
        self._buffer.earn(turn.reward.ravel() * self._reward_scale)
        if finished is None or not len(finished.index):
            return False
        self._finish(finished)
        return True

    def _request(self, policy: Policy, rows: np.ndarray, learns: bool) -> DecisionRequest:
        turn = self._turn
        assert turn is not None
        seats = 2 * rows + turn.to_move[rows]
        value = self._values_steps if learns else self._minimax != 0.0
        memory = self._memory.of(policy, seats)
        return DecisionRequest(
            policy, learns, value, rows, seats, turn.observation[rows], turn.action_mask[rows], memory
        )

    def _finish(self, finished: FinishedGames) -> None:
        slots, home = finished.index, self._home[finished.index]
        seats = np.concatenate([2 * slots, 2 * slots + 1])
        self._buffer.end(seats)
        self._unanswered[slots] = False
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
        self._turns[slots] = 1 - self._turns[slots]
        self._meet(slots)

    def _meet(self, slots: np.ndarray) -> None:  # the opponents that their tables have now, in their seats
        self._met[slots] = self._invited[self.table[slots]]
        self._home[slots] = self._turns[slots]
        for number, opponent in self._opponents.items():
            if opponent.seat is not None:
                self._home[slots[self._met[slots] == number]] = 1 - opponent.seat
        self._look_what_is_kept()

    def _look_what_is_kept(self) -> None:
        if self._log is not None:
            self._kept = np.isin(self._met, [n for n, opponent in self._opponents.items() if opponent.recorded])

    def _by_model(self, rows: np.ndarray) -> Iterator[tuple[Policy, np.ndarray]]:
        """Yield `rows` by the model that plays them: opponents with the same weights share a forward pass."""
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
