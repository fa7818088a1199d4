"""The tables of one learning player whose games are sessions, which begin at any time and may go away halfway."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from agents.policies import Policy
from envs.two_player.vector_env import decided_by
from workers.gateway.experience import Experience
from workers.rollout.games.match_result import MatchResult
from workers.rollout.games.match_scheduler import MatchTables
from workers.rollout.games.seat_map import Opponent


@dataclass(eq=False, slots=True)
class Seat:
    """One game's seat in a match; `home`: the learning player's side."""

    tables: SessionTables
    opponent: Opponent
    home: int
    decisions: int = 0  # the learning player's, so far
    expected: float = 0.0  # decisions expected of it when the game began
    counts: bool = True  # whether its result counts: no longer once its match was given up

    def by(self, side: int) -> Experience | Policy:
        """Return the decider for `side`: the learning player's experience, or an opponent's policy."""
        place = (side - self.home) % self.tables.sides
        policy = None if place == 0 else self.opponent.policies[place - 1]
        return self.tables.experience if policy is None else policy


class SessionTables:
    """Tables, as MatchTables uses them, at which sessions take seats: `take`, then `leave`, from any thread."""

    def __init__(
        self, home: str, tables: int, sides: int, experience: Experience, changed: threading.Condition
    ) -> None:
        """`home`: the learning player, whose decisions are `experience`, which is guarded by `changed`."""
        self.home, self.num_tables, self.sides, self.experience = home, tables, sides, experience
        self._changed, self._lock = changed, threading.Lock()
        self._invited: dict[int, Opponent] = {}  # the opponent of each table's next games
        self._playing: set[Seat] = set()  # seats whose results count
        self._results: dict[Hashable, list[np.ndarray]] = {}
        self._ended = False  # whether a game has ended since `pop_ended`
        self._turn = 0  # games that have begun

    # The games.

    @property
    def open(self) -> bool:
        """Return True while games may begin."""
        return bool(self._invited)

    def take(self) -> Seat | None:
        """Return a seat at the table with the fewest games; None if no match has come yet.

        The learning player takes each side in turn, except against opponents that come for one side.
        """
        with self._lock:
            if not self._invited:
                return None
            games = Counter(seat.opponent.tag for seat in self._playing)
            opponent = min(self._invited.values(), key=lambda one: games[one.tag])
            home = self._turn % self.sides if opponent.seat is None else (opponent.seat - 1) % self.sides
            self._turn += 1
            seat = Seat(self, opponent, home)
            self._playing.add(seat)
            return seat

    def leave(self, seat: Seat, returns: np.ndarray | None) -> None:
        """End the game of `seat`; `returns` float [sides]: each side's return, None for a game that went away."""
        with self._lock:
            if not seat.counts:
                return
            self._playing.discard(seat)
            self._ended = True
            if returns is not None:
                gained = decided_by(returns[None].astype(np.float32), np.array([seat.home]))
                self._results.setdefault(seat.opponent.tag, []).append(gained)

    # The matches: see Tables.

    @property
    def ready(self) -> int:
        """See Tables."""
        return self.experience.ready

    def seat(self, table: int, opponent: Opponent) -> None:
        """See Tables."""
        with self._lock:
            self._invited[table] = opponent

    def pop_results(self) -> list[MatchResult]:
        """See Tables."""
        with self._lock:
            results, self._results = self._results, {}
        found = {tag: np.concatenate(parts) for tag, parts in results.items()}
        return [MatchResult(tag, gained[:, 0], (), gained[:, 1:]) for tag, gained in found.items()]

    def in_play(self) -> set[Hashable]:
        """See Tables."""
        with self._lock:
            seated = {seat.opponent.tag for seat in self._playing}
            return seated | {opponent.tag for opponent in self._invited.values()} | self._results.keys()

    def pop_ended(self) -> bool:
        """Return whether games have ended since the last call."""
        with self._lock:
            ended, self._ended = self._ended, False
            return ended

    def give_up(self) -> None:
        """Let no game begin, and no game that is under way count."""
        with self._lock:
            self._invited.clear()
            for seat in self._playing:
                seat.counts = False
            self._playing.clear()

    def restart(self) -> None:
        """See Tables. Games under way are played to their end by the new weights, and do not count."""
        self.give_up()
        with self._changed:
            self.experience.clear()


class SessionMatches(MatchTables[SessionTables]):
    """The matches of one learning player: MatchTables whose games end when sessions do."""

    @property
    def begun(self) -> int:
        """Number of matches that have begun, and have not been reported; from any thread."""
        return len(self._open)

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load."""
        self.play.experience.load(weights, version, behaviour)

    def prepare(self) -> None:
        """See MatchTables; call it repeatedly, from one thread."""
        self.ended |= self.play.pop_ended()
        super().prepare()

    def lose(self, matches: Iterable[str]) -> None:
        """See MatchTables; their tables get other matches even if no game ends."""
        super().lose(matches)
        self.ended = True

    def leave(self) -> None:
        """Report the games of every match that were played so far; games under way do not count."""
        self.play.give_up()
        super().leave()

    def pause(self) -> None:
        """Leave, and begin anew with the next `prepare`."""
        self.restart()
        self.leave()
