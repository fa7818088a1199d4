"""A person's rated games against a player of a live league."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import redis

from league.redis.people import MOST, People
from league.redis.store import Store
from league.rules.names import ALLOWED, NAME
from league.rules.people import PersonGame, people
from warren import redis_client
from warren.errors import ConfigurationError
from workers.evaluation.saved_sides import league_in
from workers.servers import record


class RatedGames:
    """The counted games of `person` against `opponent`, a player of the league in a run folder.

    Raises ConfigurationError, before anything is played, if no game can count. `asked_by`: the option or setting that
    errors name.
    """

    def __init__(self, folder: Path, person: str, opponent: str, asked_by: str = "--rated") -> None:
        folder, league = league_in(folder)
        if not NAME.fullmatch(person):
            raise ConfigurationError(f"{asked_by}: {person!r} cannot name a person; use {ALLOWED}")
        self.person, self._opponent, self._series, self._asked_by = person, opponent, league.series, asked_by
        self._store = _store_of(folder, asked_by)
        self._people = People(self._store.redis, self._store.prefix)
        roster = self._store.view().roster
        if person in roster:
            raise ConfigurationError(f"{asked_by}: {person} is a player of the league; choose another name")
        if opponent not in roster or roster[opponent].removed:
            raise ConfigurationError(
                f"{asked_by}: {opponent} is not in the league now, so that games against it say nothing of others; "
                "play against one that `python -m league.show` lists, as in --player main"
            )
        self._slot = roster[opponent].slot
        if len(self._people) >= MOST:
            raise ConfigurationError(f"{asked_by}: the league has {MOST:,} rated games, and takes no more")

    def count(self, seat: int, returned: float) -> None:
        """Count a game that ended with the return `returned` of the person in `seat`. Raises ConfigurationError."""
        try:
            elo = float(self._store.view().elo(np.array([self._slot], dtype=np.intp))[0])
            self._people.add(PersonGame(self.person, self._opponent, elo, seat, returned, self._series, time.time()))
        except redis.RedisError as error:
            raise ConfigurationError(
                f"{self._asked_by}: the league's store is gone ({error}); this game does not count, those before it do"
            ) from None

    def rating(self) -> str:
        """Return the person's rating by all of their rated games, as a sentence."""
        (row,) = people(game for game in self._people.games().values() if game.person == self.person)
        return (
            f"{self.person}: Elo {row['elo']:.0f} ({row['elo_lower']:.0f} to {row['elo_upper']:.0f}, 95%) by "
            f"{row['games']:,} rated games"
        )


def _store_of(folder: Path, asked_by: str) -> Store:
    try:
        found = record.read(folder)
        connection = redis_client.connect(found.redis_url)
        store = Store(connection, f"warren.{record.name_of(folder)}:league:")
        if store.exists():
            return store
        why = f"Redis does not hold the league of {folder}"
    except ConfigurationError as error:
        why = str(error)
    except redis.RedisError as error:
        why = f"the Redis of {folder} does not answer ({error})"
    raise ConfigurationError(
        f"{asked_by}: {why}; games count while its run goes on: resume it by python -m workers.train resume={folder}, "
        f"or leave out {asked_by}"
    )
