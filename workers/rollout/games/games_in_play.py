"""State of N turn-based games that the caller steps: seating, pending decisions, and the trajectories they produce.

    play = GamesInPlay(64, policy, unroll_length=16, tables=4)
    play.begin(games.reset())
    while True:
        (action,) = decide([play], generator)               # several share one forward pass for each model
        turn = games.step(action)
        ended = play.follow(turn, games.pop_finished())

The N game slots are split into tables. A table has one opponent at a time, or one for each other team: seat_map.py.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agents.checkpoints import fingerprint
from agents.networks import Memory
from agents.policies import Policy, SeatMemories
from agents.trajectories import Trajectory
from envs import Turn
from envs.two_player.vector_env import PLAYERS, FinishedGames, decided_by, team_returns
from workers.rollout.games.game_log import GameLog, PlayedGame, Weights
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.seat_map import TWO, Opponent, SeatMap
from workers.rollout.games.trajectory_buffer import TrajectoryBuffer


@dataclass(slots=True)
class DecisionRequest:
    """Decisions that one model is to make. `learns`: it learns from them; `value`: its value of them is needed, too."""

    policy: Policy
    learns: bool
    value: bool
    rows: np.ndarray  # int64 [K]: indices of the games
    seats: np.ndarray  # int64 [K]: P * game + player
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
        teams: Sequence[Sequence[int]] = TWO,
    ) -> None:
        """`reward_scale` multiplies the rewards in trajectories, not the results.

        `log`: the games' log if they are recorded; `player`: the policy's name there. `fields`: those that the
        algorithm asks for, as in its Needs. Experience that is more than `max_age` versions old is dropped
        (`pop_expired`); None: never.

        `minimax`: each of the policy's decisions is also rewarded by `minimax` times the fall of the opponent's value
        of its own positions, from its last position to the next (after Bairamian et al. 2023). Before the first and
        after the last position that value counts as 0, so over a whole game these rewards add up to 0. Mirror matches
        and results are without them; they are for games of two players. `teams`: as the games have them.
        """
        self.policy = policy
        self.version = -1
        self.decisions = 0  # decisions of the learning policy since the start
        self.num_tables = tables
        self.seating = SeatMap(num_games, tables, teams)
        self._teams = teams
        self._reward_scale = np.float32(reward_scale)
        spec = policy.spec(True, fields=fields)
        self._values_steps = spec.values_steps
        seats = self.seating.players * num_games
        self._buffer = TrajectoryBuffer(seats, unroll_length, spec, max_age)
        self._memory = SeatMemories(seats)
        self._results: dict[int, list[np.ndarray]] = {}
        self._games: dict[int, list[PlayedGame]] = {}  # opponent's number -> recorded games
        self._episodes: list[np.ndarray] = []
        self._turn: Turn | None = None  # None: all games are to begin
        self._action = np.zeros(num_games, np.int64)
        self._minimax = minimax
        self._expected = np.zeros(num_games, np.float32)  # [N]: the opponent's value of its last position
        self._player, self._log = player, log
        self._weights = Weights(player, self.version, 0)
        self._kept = np.zeros(num_games, np.bool_)  # [N]: whether the game under way is recorded
        self._fresh = True  # no move made: opponents may still be seated without waiting for a game's end

    def renew(self, version: int) -> None:
        """Drop experience that is too old for the learning policy's new weights, which are of `version`."""
        self.version = version
        self._buffer.renew(version)
        if self._log is not None:
            self._weights = Weights(self._player, version, fingerprint(self.policy))

    def pop_expired(self) -> int:
        """Return how many decisions were dropped as too old since the last call."""
        return self._buffer.pop_expired()

    def seat(self, table: int, opponent: Opponent) -> None:
        """Let `table` play `opponent`, after its games under way have ended."""
        self.seating.invite(table, opponent)
        if self._fresh:
            self._meet(np.flatnonzero(self.seating.table == table))

    def restart(self) -> None:
        """Drop all games and experience, but keep results: the policy has become another one. Call `begin` next."""
        self._buffer.clear()
        self._memory.begin()
        self._expected[:] = 0.0
        self._turn = None
        self._meet(np.arange(len(self._action)))
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
        known = self.seating.known
        results = [
            MatchResult(known[number].tag, found[:, 0], tuple(self._games.get(number, ())), found[:, 1:])
            for number, parts in self._results.items()
            for found in [np.concatenate(parts)]
        ]
        self._results.clear()
        self._games.clear()
        self.seating.forget()
        return results

    def in_play(self) -> set[Hashable]:
        """Return the tags of the opponents in the games under way and in the next ones."""
        return self.seating.tags()

    # A move in every game.

    def requests(self) -> Iterator[DecisionRequest]:
        """Yield the pending decisions, by model."""
        assert self._turn is not None
        seats = self.seating.at(self._turn.to_move)
        mine = self.seating.mine(seats)
        rows = np.flatnonzero(mine)
        if rows.size:
            yield self._request(self.policy, rows, seats[rows], learns=True)
        if rows.size < len(mine):
            for policy, rows in self.seating.by_model(np.flatnonzero(~mine), seats):
                yield self._request(policy, rows, seats[rows], learns=False)

    def take_decisions(
        self, request: DecisionRequest, action: np.ndarray, extras: dict[str, np.ndarray], memory: Memory
    ) -> None:
        """Take the decisions of `request`, arrays [K, ...]."""
        self._memory.keep(request.policy, request.seats, memory)
        self._action[request.rows] = action
        if not request.learns:
            if self._minimax:
                self._reward_by_value(request.rows, extras["value"])
            return
        decision = {
            "observation": request.observation, "action": action, "action_mask": request.action_mask, "extras": extras
        }  # fmt: skip
        remembered = {name: part.cpu().numpy() for name, part in request.memory.items()}
        self._buffer.decide(request.seats, decision, remembered, self.version)
        self.decisions += request.rows.size

    def _reward_by_value(self, rows: np.ndarray, value: np.ndarray | float) -> None:
        """Reward the decisions in games `rows` by how far the value of the opponents' positions fell, to `value` [K].

        Differences of a potential do not change best responses (Ng et al. 1999); values themselves would add up over a
        game.
        """
        reward = np.zeros(PLAYERS * len(self._action), np.float32)
        reward[PLAYERS * rows + self.seating.home[rows]] = self._minimax * (self._expected[rows] - value)
        self._buffer.earn(reward)
        self._expected[rows] = value

    def moves(self) -> np.ndarray:
        """Return the move in every game, int64 [N], once all are decided."""
        action, self._action = self._action, np.empty_like(self._action)
        if self._log is not None:
            self._log.moved(action, self._weights)
        self._fresh = False
        return action

    def noise(self, request: DecisionRequest, generator: torch.Generator) -> np.ndarray | None:
        """Return the noise float32 [K, A] by which these decisions are drawn; None if none of the games is recorded."""
        if self._log is None or not (kept := self._kept[request.rows]).any():
            return None
        noise: np.ndarray = torch.empty(request.action_mask.shape).exponential_(generator=generator).numpy()
        noise[kept] = self._log.noise(request.rows[kept])
        return noise

    def follow(self, turn: Turn, finished: FinishedGames | None) -> bool:
        """Take in the results of the moves; return True if any games `finished`."""
        self._turn = turn
        self._buffer.earn(turn.reward.ravel() * self._reward_scale)
        if finished is None or not len(finished.index):
            return False
        self._finish(finished)
        return True

    def _request(self, policy: Policy, rows: np.ndarray, seats: np.ndarray, learns: bool) -> DecisionRequest:
        turn = self._turn
        assert turn is not None
        value = self._values_steps if learns else self._minimax != 0.0
        memory = self._memory.of(policy, seats)
        return DecisionRequest(
            policy, learns, value, rows, seats, turn.observation[rows], turn.action_mask[rows], memory
        )

    def _finish(self, finished: FinishedGames) -> None:
        slots, home = finished.index, self.seating.home[finished.index]
        seats = self.seating.seats(slots)
        if self._minimax:
            self._reward_by_value(slots, 0.0)
        self._buffer.end(seats)
        self._memory.begin(seats)
        by_team = team_returns(finished.returns, self._teams)
        # A game that is cut off counts by what was earned so far: its end cannot be known.
        gained, met = decided_by(by_team, home), self.seating.met[slots]
        for number in np.unique(met):
            self._results.setdefault(int(number), []).append(gained[met == number])
        if self._log is not None:
            for number, game in zip(met.tolist(), self._log.pop(finished, home, self._kept[slots]), strict=True):
                if game is not None:
                    self._games.setdefault(number, []).append(game)
        self._episodes.append(
            np.stack([by_team[np.arange(len(slots)), home], finished.length.astype(np.float32)], axis=1)
        )
        self.seating.turn(slots)
        self._meet(slots)

    def _meet(self, slots: np.ndarray) -> None:
        self.seating.meet(slots)
        if self._log is not None:
            self._kept = self.seating.recorded()
