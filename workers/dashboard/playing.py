"""A person's games against a league's players: one table per game, with the rules and the weights in this process."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import redis

from warren.errors import ConfigurationError, UnknownName
from workers.dashboard.boards import board_of

if TYPE_CHECKING:
    from agents.networks import Memory
    from agents.policies import Policy
    from envs import Turn, TwoPlayerVectorEnv
    from workers.evaluation.rated import RatedGames
    from workers.runtime.trained import Trained

TABLES = 32  # games at once; of more, the ones that have waited longest for a move are dropped
PLAYERS = 4  # players that are kept loaded


@dataclass
class Table:
    """One game. `seat`: the person's; `memories`: the policy's memory of each seat, the person's included.

    A game that is `rated` shows no views before its end; `rating` is then the person's rating as a sentence, or the
    reason why this game does not count.
    """

    games: TwoPlayerVectorEnv
    policy: Policy
    turn: Turn
    seat: int
    greedy: bool
    opponent: str
    generator: np.random.Generator
    memories: list[Memory]
    rated: RatedGames | None = None
    rating: str | None = None
    moves: list[dict[str, Any]] = field(default_factory=list)
    returns: list[float] | None = None

    @property
    def to_move(self) -> int:
        """The seat whose turn it is."""
        return int(self.turn.to_move[0])

    def view(self) -> tuple[dict[str, Any], Memory]:
        """Return (the policy's view of the position for the seat to move: probabilities and value, its next memory)."""
        memory = self.memories[self.to_move]
        observation, mask = self.turn.observation, self.turn.action_mask
        value = np.ravel(self.policy.value(observation, memory))
        probabilities, after = self.policy.probabilities_after(memory, observation, mask)
        shares = {
            self.games.action_text(0, int(action)): round(float(probabilities[0, action]), 4)
            for action in np.flatnonzero(mask[0])
        }
        seen = {"probabilities": shares, "value": round(float(value[0]), 4) if self.policy.has_value else None}
        return {**seen, "distribution": probabilities[0]}, after

    def make(self, action: int | None) -> None:
        """Make a move for the seat to move; None: the policy decides. Raises IllegalAction."""
        seen, memory = self.view()
        shares = np.asarray(seen.pop("distribution"), np.float64)
        seat = self.to_move
        if action is None:
            action = (
                int(shares.argmax())
                if self.greedy
                else int(self.generator.choice(len(shares), p=shares / shares.sum()))
            )
        name = self.games.action_text(0, action)
        self.turn = self.games.step(np.array([action]))
        self.memories[seat] = memory
        self.moves.append(
            {"seat": seat, "action": name, "by": "you" if seat == self.seat else self.opponent, "view": seen}
        )
        if self.turn.done[0]:
            self.returns = [float(one) for one in self.games.pop_finished().returns[0]]
            if self.rated is not None:
                self.rating = _counted(self.rated, self.seat, self.returns[self.seat])

    def go_on(self) -> None:
        """Let the player move until it is the person's turn, or the game is over."""
        while self.returns is None and self.to_move != self.seat:
            self.make(None)

    def shown(self) -> dict[str, Any]:
        """Return the game as the person may see it; the page shows its views on request."""
        over = self.returns is not None
        legal: list[dict[str, Any]] = []
        view: dict[str, Any] | None = None
        if not over:
            legal = [
                {"action": int(action), "name": self.games.action_text(0, int(action))}
                for action in np.flatnonzero(self.turn.action_mask[0])
            ]
            if self.rated is None:
                view, _ = self.view()
                del view["distribution"]
        return {
            "seat": self.seat,
            "opponent": self.opponent,
            "over": over,
            "returns": self.returns,
            "legal": legal,
            "view": view,
            "moves": self.moves if over else [*map(self._told, self.moves)],
            "rated": None if self.rated is None else self.rated.person,
            "rating": self.rating,
            **board_of(self.games.last_text(0) if over else self.games.text(0)),
        }

    def _told(self, move: dict[str, Any]) -> dict[str, Any]:
        """Return a move as the person may see it before the end."""
        if self.games.hidden_moves and move["seat"] != self.seat:
            return {**move, "action": "has moved", "view": None}
        return move if self.rated is None else {**move, "view": None}


def _rated(folder: Path, person: str, player: str) -> RatedGames:
    from workers.evaluation.rated import RatedGames

    try:
        return RatedGames(folder, person, player, "rated")
    except redis.RedisError as error:
        raise ConfigurationError(f"rated: the run's Redis does not answer ({error}); leave out rated") from None


def _counted(rated: RatedGames, seat: int, returned: float) -> str:
    try:
        rated.count(seat, returned)
        return rated.rating()
    except (ConfigurationError, redis.RedisError) as error:
        return str(error)


class Tables:
    """The games that are under way."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tables: OrderedDict[str, Table] = OrderedDict()
        self._players: OrderedDict[tuple[Path, str], Trained] = OrderedDict()

    def sit(self, folder: Path, player: str, seat: object, greedy: bool, rated: object = None) -> dict[str, Any]:
        """Begin a game against `player`; `seat` 0, 1 or None for either. Raises UnknownName, ConfigurationError.

        `rated`: the name of a person for whose rating the game counts.
        """
        if seat is not None and (type(seat) is not int or seat not in (0, 1)):
            raise ConfigurationError(f"seat: {seat!r} is no seat; use 0, 1, or null for either")
        if rated is not None and not isinstance(rated, str):
            raise ConfigurationError(f"rated: {rated!r} is not the name of a person; use text, or null for no rating")
        if rated is not None and greedy:
            raise ConfigurationError("rated: a player of the league draws its moves; leave rated or greedy out")
        with self._lock:
            trained = self._trained(folder, player)
            counts = None if rated is None else _rated(folder, rated, player)
            games = trained.games(seed=secrets.randbits(31))
            table = Table(
                games,
                trained.policy,
                games.reset(),
                secrets.randbelow(2) if seat is None else seat,
                greedy,
                player,
                np.random.default_rng(secrets.randbits(63)),
                [trained.policy.initial_memory(1), trained.policy.initial_memory(1)],
                counts,
            )
            table.go_on()
            name = secrets.token_urlsafe(12)
            self._tables[name] = table
            while len(self._tables) > TABLES:
                self._tables.popitem(last=False)[1].games.close()
            return {"game": name, **table.shown()}

    def move(self, name: str, action: object) -> dict[str, Any]:
        """Make the person's move, and the player's after it. Raises UnknownName, ConfigurationError."""
        with self._lock:
            table = self._tables.get(name)
            if table is None:
                raise UnknownName("game", name, (), "(it was left for too long); begin another")
            self._tables.move_to_end(name)
            legal = [] if table.returns is not None else np.flatnonzero(table.turn.action_mask[0]).tolist()
            if type(action) is not int or action not in legal:
                raise ConfigurationError(f"action: {action!r} is not legal now; legal are {legal}")
            table.make(action)
            table.go_on()
            return {"game": name, **table.shown()}

    def _trained(self, folder: Path, player: str) -> Trained:
        from workers.runtime.trained import load

        key = folder, player
        if key not in self._players or "@" not in player:  # a learning player may have a newer checkpoint
            trained = load(folder, player)
            if not trained.two_player:
                raise ConfigurationError(f"{trained.env_id} is played by one agent; only games of two have a table")
            self._players[key] = trained
            while len(self._players) > PLAYERS:
                self._players.popitem(last=False)
        self._players.move_to_end(key)
        return self._players[key]
