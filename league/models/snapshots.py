"""A whole league in a folder, and back: its stream, from which its state follows, its models, and returns.

    FOLDER/league.jsonl, history/     the stream (saved_stream.py)
    FOLDER/models.json                what the pool knows of each model that is saved
    FOLDER/models/PLAYER@VERSION.safetensors
    FOLDER/returns.json               returns between frozen players: slots of seat 0 and 1, games, sum, sum of squares
    FOLDER/mixture.json               how a mixture is made of the returns, their source, and a game's largest return
    FOLDER/people.json                rated games of people, by their ids
    FOLDER/format.json                the release that saved last, and its format

A save writes only the changes since the last one. A crash in the middle of a save leaves the save before it: files are
written under another name and then renamed, and a line cut off at the end of the stream is written again. A save never
replaces the folder's content by less: a league in Redis that lacks some of it is not saved.
"""

from __future__ import annotations

import json
import logging
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from league.empirical_game.least_exploitable import LeastExploitable
from league.empirical_game.mixture import GAMES, MixtureSettings
from league.empirical_game.returns import Returns
from league.matchmaking.view import ModelRef
from league.models.model import DISK
from league.models.model_files import ModelFiles
from league.models.pool import Pool
from league.models.saved_files import INDEX, MODELS, entry_of, listed, read_saved
from league.models.saved_stream import SavedStream, holds_league
from league.redis.people import People
from league.redis.restore import holds_one, restore
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.rules.people import PersonGame
from league.state.fields import to_json
from league.state.league_state import LeagueState
from league.state.replay import FORMAT, STREAM
from warren import formats
from warren.errors import LeagueError
from warren.files import read_json, write_whole

logger = logging.getLogger(__name__)

__all__ = ["PEOPLE", "RETURNS", "STREAM", "Snapshots"]

RETURNS, PEOPLE, MIXTURE = "returns.json", "people.json", "mixture.json"
SLOTS = 10_000  # of frozen players; the returns between more of them would fill gigabytes
SAY_EVERY = 2.0  # s between log lines on the progress of a restore


class Snapshots:
    """Saves and restores one league under `folder`."""

    def __init__(self, folder: Path, store: Store, pool: Pool) -> None:
        self.folder, self.store, self.pool = folder, store, pool
        self.files = ModelFiles(folder / MODELS, pool)
        self.stream = SavedStream(folder)
        self.returns = SharedReturns(store.redis, store.prefix)
        self.people = People(store.redis, store.prefix)
        self._saved_people: frozenset[str] = frozenset()  # ids of games in the folder, as far as known
        self._saved_returns: int | None = None  # version of the returns in the folder, once known
        self._saved_games: int | None = None  # games in the folder, once known

    def save(self) -> None:
        """Save to the folder: frozen models, the newest of each player, the stream, the returns, and people's games.

        Raises LeagueError, and overwrites nothing, if Redis holds another league, or less of this one than the folder.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # Returns are read before the stream and written after it, so every player with saved returns is in the saved
        # stream. Otherwise, after a restore, the next player that gets the slot would get its returns.
        self.returns.refresh()
        # The stream's end is read before the models: a saved model that the stream does not name yet does no harm, but
        # each one that it names has to be there.
        until = self.store.last_event()
        self.stream.check(self.store)
        if read_json(self.folder / FORMAT) != (stamp := formats.stamp(formats.LEAGUE)):
            write_whole(self.folder / FORMAT, to_json(stamp))
        models = self._save_models()
        # After a crash on the way the stream may be the old or the new one: the models of both stay listed until then.
        self._list(list({entry["ref"]: entry for entry in (*self._listed(), *models)}.values()))
        self.stream.follow(self.store, until)
        self._save_returns()
        self._save_people()
        self._list(models)
        named = {entry["ref"] for entry in models}
        for path, ref in self.files.all():
            if str(ref) not in named and self.pool.info(ref) is None:
                path.unlink()  # it was the newest once and never frozen, or is no longer needed

    def saved(self) -> bool:
        """Return True if the folder holds a league."""
        return holds_league(self.folder)

    def restore(self, ready: bool = True) -> LeagueState:
        """Put the league of the folder into Redis, which must hold none; return the restored state.

        The league appears in one step, after its models: a process that dies in the middle leaves none, and the next
        one begins again. Raises LeagueError if there is a league already or none in the folder, CheckpointError for a
        damaged model.
        """
        if not self.saved():
            raise LeagueError(f"{self.folder} holds no league ({STREAM} is missing or empty); name that of a snapshot")
        if self.store.redis.exists(f"{self.store.prefix}settings"):
            raise LeagueError(holds_one(self.store.prefix))
        started = time.monotonic()
        history, returns, people = self.stream.read(), returns_in(self.folder), people_in(self.folder)
        logger.info("%s: %d players in %d matches", self.folder, len(history.state.players), history.state.counted)
        self._restore_models()
        self.people.put(people)
        restore(self.store, history, returns, ready)
        self.returns.refresh()
        self._saved_returns = None
        logger.info("%s: restored in %.1f s", self.folder, time.monotonic() - started)
        return history.state

    # Returns.

    def _save_returns(self) -> None:
        told: dict[str, Any] = {"settings": asdict(self.returns.settings), "largest": self.returns.largest}
        if self.returns.least_exploitable is not None:
            told["least_exploitable"] = self.returns.least_exploitable.to_dict()
        if self.returns.total_games and read_json(self.folder / MIXTURE) != told:
            write_whole(self.folder / MIXTURE, to_json(told))
        if self.returns.version == self._saved_returns:
            return
        path = self.folder / RETURNS
        if self._saved_games is None:
            self._saved_games = returns_in(self.folder).total_games
        cells, games = self.returns.cells(), self.returns.total_games
        if games < self._saved_games:  # Redis lost some in a crash
            aside = path.with_name(f"returns.{time.time_ns() // 1_000_000}.json")
            path.rename(aside)
            logger.warning("Redis has %d games between frozen players, %s had more: it is %s now", games, path, aside)
        write_whole(path, to_json(cells).encode())
        self._saved_returns, self._saved_games = self.returns.version, games

    def _save_people(self) -> None:
        held = self.people.games()
        if held.keys() <= self._saved_people:
            return
        games = people_in(self.folder) | held  # Redis may have lost some in a crash
        write_whole(self.folder / PEOPLE, to_json({name: asdict(game) for name, game in games.items()}).encode())
        self._saved_people = frozenset(games)

    # Models.

    def _save_models(self) -> list[dict[str, Any]]:
        newest = {ModelRef(name, version) for name, version in self._newest().items()}
        saved = []
        for info in self.pool.models():
            if not info.frozen and info.ref not in newest:
                continue
            if info.place != DISK and not self.files.write(info):
                continue  # replaced meanwhile: the next save has a newer one
            saved.append(entry_of(info))
        return saved

    def _list(self, models: list[dict[str, Any]]) -> None:
        write_whole(self.folder / INDEX, json.dumps(models, indent=1).encode())

    def _listed(self) -> list[dict[str, Any]]:
        """Return the entries of the folder's models; none if it has no list of them, or a damaged one."""
        try:
            return [entry_of(info) for info in listed(self.folder)]
        except LeagueError:
            return []

    def _newest(self) -> dict[str, int]:
        found = self.pool.redis.hgetall(f"{self.pool.prefix}newest")
        return {name.decode(): int(version) for name, version in found.items()}

    def _restore_models(self) -> None:
        found = listed(self.folder)
        say_at = time.monotonic() + SAY_EVERY
        for number, info in enumerate(found, 1):
            self.pool.restore(info, self.files.read(info.ref, info.checksum))
            if time.monotonic() > say_at:
                logger.info("%s: %d of %d models restored", self.folder, number, len(found))
                say_at = time.monotonic() + SAY_EVERY


def returns_in(folder: Path) -> Returns:
    """Return the returns in a league's folder, with their settings; empty ones if it has none.

    Raises LeagueError for a damaged file.
    """

    def made(cells: Any) -> Returns:
        found = Returns()
        read = [(int(one), int(other), float(n), float(x), float(xx)) for one, other, n, x, xx in cells]
        if wrong := [cell for cell in read if not (0 <= min(cell[:2]) <= max(cell[:2]) < SLOTS and cell[2] > 0.0)]:
            raise ValueError(f"{list(wrong[0])} is no cell: slots are from 0 to {SLOTS - 1}, games above 0")
        found.add_cells(read)
        return found

    found = read_saved(folder / RETURNS, made, Returns())
    found.settings = MixtureSettings(source=found.found_by() or GAMES)  # in case MIXTURE is missing, as in old folders
    found.largest = max((math.sqrt(squares / games) for *_, games, _, squares in found.cells()), default=0.0)

    def settle(told: Any) -> Returns:
        found.settings, found.largest = MixtureSettings(**told["settings"]), float(told["largest"])
        if "least_exploitable" in told:
            found.least_exploitable = LeastExploitable.from_dict(told["least_exploitable"])
        return found

    return read_saved(folder / MIXTURE, settle, found)


def people_in(folder: Path) -> dict[str, PersonGame]:
    """Return the rated games of people in a league's folder, by their ids. Raises LeagueError for a damaged file."""

    def made(games: Any) -> dict[str, PersonGame]:
        return {name: PersonGame(**game) for name, game in games.items()}

    return read_saved(folder / PEOPLE, made, {})
