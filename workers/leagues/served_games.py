"""Games of a served league that env runners step, as their actor knows them: seats, results, next moves.

A call by one group of games is a mapping:

    group         str: its name
    step          int: 0, 1, 2, ...: number of the group's call; a repeated call is answered as before
    games         int: N, games that it steps for each player
    player        the player whose games the following fields describe; None if the group has none under way
    to_move       int8 [N]; observation [N, ...]; action_mask bool [N, A]: the next decisions, as in envs.Turn
    reward        float32 [N, 2]; done bool [N]: results of the last moves
    finished      None, or index int64 [K], returns float32 [K, 2] and length int64 [K] of games that ended, as a list
    seeds         int64 [N] of the games under way, if they are recorded; else None

The answer has "player", whose games are to be stepped next, and "action" int64 [N], or "begin" if all N are to begin
anew. Or it has only "leave", the service of another actor with fewer groups: this actor gives up the group's games.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents.policies import Policy
from agents.trajectories import Trajectory, TrajectorySpec, concatenate
from agents.trees import ArraySpec, problems
from envs import Turn
from envs.two_player.vector_env import FinishedGames
from warren.errors import WireError
from workers.rollout.games.game_log import GameLog
from workers.rollout.games.games_in_play import GamesInPlay
from workers.rollout.games.match_scheduler import MatchTables
from workers.rollout.sampler import load_into
from workers.rollout.served.group_calls import Answer, Call

TO_MOVE, FLAG, PAIR = ArraySpec((), "int8"), ArraySpec((), "bool"), ArraySpec((2,), "float32")
NUMBER = ArraySpec((), "int64")


@dataclass
class GameSeeds:
    """Seeds of recorded games."""

    seeds: np.ndarray  # int64 [N]


@dataclass
class ReportedGames:
    """Games as their group's calls report them, with the attributes that a GameLog reads."""

    num_envs: int
    num_actions: int
    lengths: np.ndarray  # int64 [N]
    chance: GameSeeds


class GamesElsewhere(GamesInPlay):
    """GamesInPlay whose games a group begins, so `restart` only ends them."""

    def __init__(self, num_games: int, policy: Policy, *, recorded: str | None, seed: int, **settings: Any) -> None:
        """Make `num_games` games, which begin with the group's first call.

        `recorded`: the learning policy's name; None if no game is recorded. `seed` is for the records.
        """
        nothing = np.zeros(num_games, np.int64)
        mask = policy.spec(True).action_mask
        self._reported = ReportedGames(num_games, mask.shape[0] if mask else 0, nothing, GameSeeds(nothing.copy()))
        log = GameLog(self._reported, seed) if recorded is not None else None
        super().__init__(num_games, policy, log=log, player=recorded or "", **settings)

    def hear(self, call: Call) -> bool:
        """Take in the results of the last moves; return whether any game ended."""
        turn = Turn(
            call["to_move"], call["observation"], call["action_mask"], call["reward"], call["done"],
            np.zeros_like(call["done"]),
        )  # fmt: skip
        if call["seeds"] is not None:
            self._reported.chance.seeds = call["seeds"]
        if not self.begun:
            self._reported.lengths[:] = 0
            self.begin(turn)
            return False
        self._reported.lengths += 1
        self._reported.lengths[turn.done] = 0
        return self.follow(turn, None if call["finished"] is None else FinishedGames(*call["finished"]))


@dataclass(slots=True)
class Group:
    """One group as its actor knows it. `heard`: the call taken in last; `step`: the one answered last."""

    games: int
    came_at: float  # monotonic
    used_at: float
    heard: int
    step: int = -1
    answer: Answer = field(default_factory=dict)
    asked: str | None = None  # the player whose games it steps now
    left: bool = False  # told to move to another actor
    of_player: dict[str, MatchTables[GamesElsewhere]] = field(default_factory=dict)


class GroupsOfPlayer:
    """A learning player's games in all groups; they stand together as its `Learning.matches`."""

    def __init__(self, policy: Policy, version: int) -> None:
        self._policy, self._version = policy, version
        self._tables: list[MatchTables[GamesElsewhere]] = []
        self._expired = 0

    def add(self, tables: MatchTables[GamesElsewhere]) -> None:
        """Add the games of another group, in which the loaded weights decide."""
        tables.play.renew(self._version)
        self._tables.append(tables)

    def remove(self, tables: MatchTables[GamesElsewhere]) -> None:
        """Remove the games of a group that is gone."""
        self._expired += tables.play.pop_expired()
        self._tables.remove(tables)

    def load(self, weights: Mapping[str, Any], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """Load weights, as Sampler.load does."""
        load_into(self._policy, weights, version, behaviour)
        self._version = version
        for tables in self._tables:
            tables.play.renew(version)

    def restart(self) -> None:
        """Begin all games anew: the player was reset."""
        for tables in self._tables:
            tables.restart()

    @property
    def ready(self) -> int:
        """Number of complete trajectories of the player's present generation."""
        return sum(tables.ready for tables in self._tables)

    def take(self, count: int) -> Trajectory:
        """Take `count` complete trajectories, a slot each, first from the groups that have the most."""
        taken: list[Trajectory] = []
        for tables in sorted(self._tables, key=lambda tables: -tables.ready):
            if (part := min(count, tables.ready)) > 0:
                taken.append(tables.play.take(part))
                count -= part
        return concatenate(taken)

    def pop_expired(self) -> int:
        """Return how many decisions were dropped as too old since the last call."""
        expired, self._expired = self._expired, 0
        return expired + sum(tables.play.pop_expired() for tables in self._tables)

    @property
    def held(self) -> list[str]:
        """Ids of the matches under way."""
        return [match for tables in self._tables for match in tables.held]

    def lose(self, matches: Iterable[str]) -> None:
        """Drop matches whose leases have run out."""
        lost = list(matches)
        for tables in self._tables:
            tables.lose(lost)

    def leave(self) -> None:
        """Report the results of all matches."""
        for tables in self._tables:
            tables.leave()


def check(call: Call, spec: TrajectorySpec, tables: int) -> None:
    """Raise WireError for a call that does not match the league's game, or the number of tables."""
    count, wrong = call["games"], []
    if not isinstance(count, int) or count < 1 or count % (2 * tables):
        raise WireError(f"group {call['group']}: games={count!r}; it must be a multiple of 2 * tables = {2 * tables}")
    if call["player"] is None:
        return
    assert spec.action_mask is not None
    for name, kind in (
        ("to_move", TO_MOVE), ("observation", spec.observation), ("action_mask", spec.action_mask), ("reward", PAIR),
        ("done", FLAG),
    ):  # fmt: skip
        wrong += problems(kind, call[name], (count,), name)
    if call["seeds"] is not None:
        wrong += problems(NUMBER, call["seeds"], (count,), "seeds")
    ended = None if wrong else np.flatnonzero(call["done"])
    if ended is not None and (call["finished"] is not None or ended.size):
        index, returns, length = call["finished"] or ([], [], [])
        if not np.array_equal(index, ended):
            wrong.append(f"finished must be of the {ended.size} games that are done")
        else:
            wrong += problems(PAIR, returns, (ended.size,), "finished returns")
            wrong += problems(NUMBER, length, (ended.size,), "finished length")
    if not wrong and (call["to_move"].min() < 0 or call["to_move"].max() > 1):
        wrong.append("to_move must be 0 or 1")
    if wrong:
        raise WireError(f"group {call['group']}: {'; '.join(wrong)}")
