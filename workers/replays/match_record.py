"""A recorded match: all that is needed to play each of its games again, in few and plain bytes.

    record = RecordedMatch(...)
    data = record.to_bytes()
    RecordedMatch.from_bytes(data) == record

The bytes are msgpack, compressed; they contain no code, and `from_bytes` checks every field.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import numpy as np

from warren.errors import ReplayError
from workers.rollout.games.game_log import PlayedGame, Weights
from workers.rollout.games.match_result import MatchResult

FORMAT = 1
LARGEST = 64 << 20  # bytes that a record may unpack to
ACTIONS = {1: "<u1", 2: "<u2", 4: "<u4"}  # bytes per action -> dtype in a record
REFUSALS = (zlib.error, ValueError, TypeError, LookupError, ArithmeticError, msgpack.UnpackException)
NTH, UPSET, EVALUATION = "nth", "upset", "evaluation"  # the rules by which a match is recorded


@dataclass(frozen=True)
class RecordedMatch:
    """Games between two players of a league, in the order in which they ended.

    The home player may have learned meanwhile: each game names its weights, with the move from which on each played.
    The away side has the same weights throughout.
    """

    match: str  # its id in the league
    rules: tuple[str, ...]  # why it was recorded
    env: str
    env_kwargs: Mapping[str, Any]
    home: str  # players by name
    away: str
    away_weights: Weights | None  # None: the home player plays itself
    series: int  # games that make one outcome
    outcomes: str  # counted by the league, for the home player
    ended_at: float  # Unix time, s
    source: str  # the process that played it
    games: tuple[PlayedGame, ...]

    @property
    def returns(self) -> np.ndarray:
        """float32 [games], of the home player."""
        return np.array([game.returns[game.home] for game in self.games], np.float32)

    def weights(self, game: PlayedGame, seat: int, move: int) -> Weights:
        """Return the weights that made this move, in this seat, of one of the match's games."""
        if seat != game.home and self.away_weights is not None:
            return self.away_weights
        return [weights for begins, weights in game.weights if begins <= move][-1]

    def outcomes_of(self, returns: np.ndarray) -> str:
        """Return the outcomes that the league would count for these returns float32 [games] of the home player."""
        return MatchResult(self.match, returns).outcomes(self.series)

    def with_outcomes(self) -> RecordedMatch:
        """Return this match with the outcomes of its returns, for a match that no league has counted."""
        return replace(self, outcomes=self.outcomes_of(self.returns))

    def to_bytes(self) -> bytes:
        """Return the record as `from_bytes` takes it."""
        played = list(dict.fromkeys(weights for game in self.games for _, weights in game.weights))
        place = {weights: index for index, weights in enumerate(played)}
        largest = max((int(game.actions.max(initial=0)) for game in self.games), default=0)
        width = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
        games = [
            [
                game.seed,
                game.drawn_by,
                game.home,
                [float(value) for value in game.returns],
                [[move, place[weights]] for move, weights in game.weights],
                game.actions.astype(ACTIONS[width]).tobytes(),
            ]
            for game in self.games
        ]
        fields = {
            **{name: getattr(self, name) for name in PLAIN},
            "format": FORMAT,
            "rules": list(self.rules),
            "env_kwargs": dict(self.env_kwargs),
            "away_weights": None if self.away_weights is None else list(self.away_weights),
            "weights": [list(weights) for weights in played],
            "width": width,
            "games": games,
        }
        return zlib.compress(msgpack.packb(fields), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> RecordedMatch:
        """Return the record that `to_bytes` was called on. Raises ReplayError for anything else."""
        try:
            unpacked = zlib.decompressobj()
            fields = msgpack.unpackb(unpacked.decompress(data, LARGEST), raw=False)
            if unpacked.unconsumed_tail:
                raise ValueError(f"unpacks to more than {LARGEST} bytes")
            if fields["format"] != FORMAT:
                raise ValueError(f"is of format {fields['format']}, and this version reads {FORMAT}")
            return cls._from(fields)
        except REFUSALS as error:
            raise ReplayError(f"a record of {len(data)} bytes is not that of a match: {error!r}") from None

    @classmethod
    def _from(cls, fields: Mapping[str, Any]) -> RecordedMatch:
        for name, kind in PLAIN.items():
            if not isinstance(fields[name], kind):
                raise TypeError(f"{name} is {type(fields[name]).__name__}")
        played = [_weights(given) for given in fields["weights"]]
        away = fields["away_weights"]
        return cls(
            **{name: fields[name] for name in PLAIN},
            rules=tuple(str(rule) for rule in fields["rules"]),
            env_kwargs=dict(fields["env_kwargs"]),
            away_weights=None if away is None else _weights(away),
            games=tuple(_game(given, ACTIONS[fields["width"]], played) for given in fields["games"]),
        )


PLAIN: dict[str, type] = {
    "match": str,
    "env": str,
    "home": str,
    "away": str,
    "series": int,
    "outcomes": str,
    "ended_at": float,
    "source": str,
}


def _weights(given: Any) -> Weights:
    player, version, digest = given
    if not isinstance(player, str):
        raise TypeError(f"a player is {type(player).__name__}")
    return Weights(player, int(version), int(digest))


def _game(given: Any, kind: str, played: list[Weights]) -> PlayedGame:
    seed, drawn_by, home, returns, changes, actions = given
    weights = tuple((int(move), played[place]) for move, place in changes)
    if home not in (0, 1) or len(returns) != 2 or (not weights and actions) or (weights and weights[0][0] != 0):
        raise ValueError("a game's seat, returns or weights are impossible")
    moves = np.frombuffer(actions, kind).astype(np.int64)
    return PlayedGame(int(seed), int(drawn_by), int(home), moves, np.array(returns, np.float32), weights)
