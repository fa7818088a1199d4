"""SeatMap: the players in the seats of N games, while opponents come to tables and go.

Teams are numbered as the game numbers them. Places are counted from the home player's team, which has place 0. The next
team has place 1 and is played by the table's opponent. The teams after it have places from 2 on and are played by the
opponent's `others`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from agents.policies import Policy
from envs.two_player.vector_env import PLAYERS

TWO = tuple((player,) for player in range(PLAYERS))  # the teams of a game of two players


@dataclass(frozen=True)
class Opponent:
    """The opponents of a table. None in place of a policy is the learning policy itself, which learns there too."""

    tag: Hashable  # comes back with the results
    policy: Policy | None = None
    recorded: bool = False  # results against it hold the games themselves
    seat: int | None = None  # the team that `policy` plays; None: each in turn
    others: tuple[Policy | None, ...] = ()  # policies of the third team on

    @property
    def policies(self) -> tuple[Policy | None, ...]:
        """Return the policies by place, from place 1 on."""
        return (self.policy, *self.others)


class SeatMap:
    """The seats of N games at `tables` tables, each with one Opponent at a time; `teams` as in envs.TurnVectorEnv.

    In each slot the learning policy plays the teams in turn; equally many slots of a table begin with each team. An
    opponent with a `seat` fixes the team instead. `home` int64 [N]: the team that the learning policy plays.
    """

    def __init__(self, num_games: int, tables: int, teams: Sequence[Sequence[int]] = TWO) -> None:
        self.players, self.teams = sum(map(len, teams)), len(teams)
        self._team_of = np.array([next(t for t, team in enumerate(teams) if p in team) for p in range(self.players)])
        slots = np.arange(num_games)
        self.table = slots % tables  # [N]
        self._turns = (slots // tables % self.teams).astype(np.int64)  # [N]: the team that is next in turn
        self.home = self._turns.copy()
        self.met = np.zeros(num_games, np.int64)  # [N]: number of the opponent in the game under way
        self.known: dict[int, Opponent] = {0: Opponent("self", others=(None,) * (self.teams - PLAYERS))}
        self._numbers = 1
        self._invited = np.zeros(tables, np.int64)  # number of the opponent in each table's next games
        self._chairs = np.zeros((num_games, self.players), np.int64)  # [N, P]: opponent's number * teams + place
        self._mine = np.ones((num_games, self.players), np.bool_)  # [N, P]: whether the learning policy plays the seat
        self._first = self.players * slots

    def invite(self, table: int, opponent: Opponent) -> None:
        """Let the games of `table` that begin from now on be against `opponent`."""
        number = next((n for n, known in self.known.items() if known == opponent), self._numbers)
        self._numbers = max(self._numbers, number + 1)
        self.known[number] = opponent
        self._invited[table] = number

    def meet(self, slots: np.ndarray) -> None:
        """Seat, in the games `slots` int64 [K], the opponents that their tables have now."""
        self.put(slots, self._invited[self.table[slots]])

    def put(self, slots: np.ndarray, met: np.ndarray) -> None:
        """Seat the opponents with the numbers `met` int64 [K] in the games `slots` int64 [K]."""
        self.met[slots] = met
        home = self._turns[slots]
        for number, opponent in self.known.items():
            if opponent.seat is not None:
                home[met == number] = (opponent.seat - 1) % self.teams
        self.home[slots] = home
        place = (self._team_of - home[:, None]) % self.teams
        self._chairs[slots] = chairs = met[:, None] * self.teams + place
        mine = place == 0
        if mirrors := self._mirrors():
            mine |= np.isin(chairs, mirrors)
        self._mine[slots] = mine

    def turn(self, slots: np.ndarray) -> None:
        """Give the learning policy the next team in the games `slots` int64 [K], which have ended."""
        self._turns[slots] = (self._turns[slots] + 1) % self.teams

    def at(self, to_move: np.ndarray) -> np.ndarray:
        """int64 [N]: the seats, P * game + player, of the players `to_move` [N]."""
        seats: np.ndarray = self._first + to_move
        return seats

    def mine(self, seats: np.ndarray) -> np.ndarray:
        """bool [K]: whether the learning policy plays `seats` int64 [K]."""
        return self._mine.reshape(-1).take(seats)

    def by_model(self, rows: np.ndarray, seats: np.ndarray) -> Iterator[tuple[Policy, np.ndarray]]:
        """Yield (model, those of `rows` whose `seats` [N] it plays); opponents with the same model are one entry."""
        chairs = self._chairs.reshape(-1).take(seats[rows])
        models: dict[int, tuple[Policy, list[int]]] = {}
        for chair in np.unique(chairs).tolist():
            number, place = divmod(chair, self.teams)
            policy = self.known[number].policies[place - 1]
            assert policy is not None  # otherwise the learning policy would play these rows
            models.setdefault(id(policy), (policy, []))[1].append(chair)
        for policy, held in models.values():
            yield policy, rows[np.isin(chairs, held)] if len(models) > 1 else rows

    def seats(self, slots: np.ndarray) -> np.ndarray:
        """int64 [P * K]: all seats of the games `slots`, each P * game + player."""
        seats: np.ndarray = (self.players * slots + np.arange(self.players)[:, None]).ravel()
        return seats

    def tags(self) -> set[Hashable]:
        """Return the tags of the opponents in the games under way and in the next ones."""
        return {self.known[number].tag for number in self._in_play()}

    def forget(self) -> None:
        """Forget opponents that are not in play."""
        in_play = self._in_play()
        self.known = {number: opponent for number, opponent in self.known.items() if number in in_play}

    def recorded(self) -> np.ndarray:
        """bool [N]: whether the opponent of the game under way is recorded."""
        return np.isin(self.met, [number for number, opponent in self.known.items() if opponent.recorded])

    def _in_play(self) -> set[int]:
        return {*self.met.tolist(), *self._invited.tolist()}

    def _mirrors(self) -> list[int]:
        return [
            number * self.teams + place
            for number, opponent in self.known.items()
            for place, policy in enumerate(opponent.policies, 1)
            if policy is None
        ]
