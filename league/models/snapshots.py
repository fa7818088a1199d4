"""A whole league in a folder, and back: its stream, from which all else follows, and its models.

    FOLDER/league.jsonl           the stream, one event a line; only grows
    FOLDER/models.json            what the pool knows of each model that is saved
    FOLDER/models/PLAYER@VERSION.safetensors
    FOLDER/returns.json           returns between frozen players: slots of seat 0 and 1, games, sum, sum of squares

A save adds what is new, so it costs what happened since the last one. A crash in the middle leaves the last whole save:
files are written beside and renamed, and a line cut off at the end of the stream is written again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from league.matchmaking.view import ModelRef
from league.models.pool import DISK, ModelInfo, Pool, checksum_of, damaged
from league.redis.shared_returns import SharedReturns
from league.redis.store import Store
from league.state.fields import to_field, to_json
from league.state.league_state import LeagueState
from league.state.replay import fold, read_file
from warren.errors import CheckpointError, LeagueError

STREAM, INDEX, MODELS, RETURNS = "league.jsonl", "models.json", "models", "returns.json"
BATCH = 2000  # events sent at once


class Snapshots:
    """Saves and restores one league under `folder`."""

    def __init__(self, folder: Path, store: Store, pool: Pool) -> None:
        self.folder, self.store, self.pool = folder, store, pool
        self.files = ModelFiles(folder / MODELS, pool)
        self.returns = SharedReturns(store.redis, store.prefix)
        self._last: str | None = None  # id of the last event saved, once known
        self._saved_returns: int | None = None  # their version in the folder, once known

    def save(self) -> None:
        """Bring the folder up to now: frozen models, the newest of each player, the stream, and the returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # Read before the stream and written after it: returns of a player that the stream does not name would become
        # those of whoever gets its slot after a restore.
        self.returns.refresh()
        # The stream first: a model that it does not name yet does no harm, one that it names has to be there.
        until = self.store.last_event()
        models = self._save_models()
        self._save_stream(until)
        if self.returns.version != self._saved_returns:
            write_whole(self.folder / RETURNS, to_json(self.returns.cells()).encode())
            self._saved_returns = self.returns.version
        write_whole(self.folder / INDEX, json.dumps(models, indent=1).encode())
        named = {f"{entry['ref']}.safetensors" for entry in models}
        for path in self.files.folder.glob("*.safetensors"):
            if path.name not in named and self.pool.info(ModelRef.parse(path.stem)) is None:
                path.unlink()  # was newest once, never frozen

    def restore(self) -> LeagueState:
        """Put the league of the folder into Redis, which holds none; the restored state.

        Raises LeagueError when there is a league already or none in the folder, CheckpointError for a damaged model.
        """
        stream = self.folder / STREAM
        if not stream.exists():
            raise LeagueError(f"{self.folder} holds no league ({STREAM} is missing); name the folder of a snapshot")
        prefix = self.store.prefix
        if self.store.redis.exists(f"{prefix}events", f"{prefix}returns", f"{self.pool.prefix}newest"):
            raise LeagueError(
                f"Redis holds a league under {prefix!r} already; restore under another run, or wipe that one"
            )
        self._restore_models()
        state = fold(read_file(stream))
        self._write_state(state)
        self._send_stream(stream)
        returns = self.folder / RETURNS
        self.returns.restore(json.loads(returns.read_text()) if returns.exists() else [])
        return state

    # Models.

    def _save_models(self) -> list[dict[str, Any]]:
        newest = {ModelRef(name, version) for name, version in self._newest().items()}
        saved = []
        for info in self.pool.models():
            if not info.frozen and info.ref not in newest:
                continue
            if info.place != DISK and not self.files.write(info):
                continue  # replaced meanwhile: a newer one comes with the next save
            saved.append(
                {
                    "ref": str(info.ref),
                    "step": info.step,
                    "created": info.created,
                    "checksum": info.checksum,
                    "size": info.size,
                    "frozen": info.frozen,
                    "parent": str(info.parent or ""),
                    "attributes": dict(info.attributes),
                }
            )
        return saved

    def _newest(self) -> dict[str, int]:
        found = self.pool.redis.hgetall(f"{self.pool.prefix}newest")
        return {name.decode(): int(version) for name, version in found.items()}

    def _restore_models(self) -> None:
        index = self.folder / INDEX
        entries = json.loads(index.read_text()) if index.exists() else []
        # In the order of their versions: a pool takes only newer ones.
        for entry in sorted(entries, key=lambda entry: ModelRef.parse(entry["ref"]).version):
            ref = ModelRef.parse(entry["ref"])
            path = self.files.path(ref)
            data = path.read_bytes() if path.exists() else b""
            if checksum_of(data) != entry["checksum"]:
                raise CheckpointError(f"{path} is missing or damaged; restore it from a backup, or take out its entry")
            parent = ModelRef.parse(entry["parent"]) if entry["parent"] else None
            self.pool.put(ref.player, ref.version, entry["step"], data, parent)
            self.pool.redis.hset(f"{self.pool.prefix}model:{ref}", "created", repr(entry["created"]))
            if entry["attributes"]:
                self.pool.describe(ref, **entry["attributes"])
            if entry["frozen"]:
                self.pool.freeze(ref.player, ref.version)

    # The stream and what follows from it.

    def _save_stream(self, until: str) -> None:
        path = self.folder / STREAM
        if self._last is None:
            self._last = _mend(path)
        with path.open("a") as lines:
            for entry, event in self.store.events(after=self._last, until=until):
                lines.write(to_json({"id": entry, "fields": event}) + "\n")
                self._last = entry
            lines.flush()
            os.fsync(lines.fileno())

    def _send_stream(self, stream: Path) -> None:
        key, pipeline = f"{self.store.prefix}events", self.store.redis.pipeline(transaction=False)
        for number, (entry, event) in enumerate(read_file(stream), 1):
            pipeline.xadd(key, dict(event), id=entry)
            if number % BATCH == 0:
                pipeline.execute()
        pipeline.execute()

    def _write_state(self, state: LeagueState) -> None:
        prefix = self.store.prefix
        with self.store.redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(f"{prefix}settings", mapping=state.settings.to_fields())
            if state.counters:
                pipeline.hset(f"{prefix}counters", mapping=dict(state.counters))
            pipeline.set(f"{prefix}roster", state.roster_version)
            for version, (name, player) in enumerate(state.players.items(), 1):
                progress = state.progress[name]
                fields = {
                    **{key: to_field(getattr(player, key)) for key in _PLAYER},
                    **{key: to_field(getattr(progress, key)) for key in vars(progress)},
                }
                pipeline.hset(f"{prefix}player:{name}", mapping=fields)
                pipeline.zadd(f"{prefix}players", {name: player.slot})
                pipeline.zadd(f"{prefix}elo", {str(player.slot): state.ratings[player.slot]})
                # Every player counts as changed, each at a version of its own up to the roster's.
                pipeline.zadd(f"{prefix}changes", {name: min(version, state.roster_version)})
                pipeline.set(f"{prefix}payoff:{player.slot}", state.payoff.cells[player.slot].tobytes())
            for match in state.matches.values():
                fields = {key: to_field(value) for key, value in vars(match).items() if key != "match"}
                pipeline.hset(f"{prefix}match:{match.match}", mapping=fields)
                pipeline.zadd(f"{prefix}leases", {match.match: match.deadline})
            pipeline.execute()


_PLAYER = (
    *("slot", "kind", "config", "parent", "model", "initial", "frozen", "paused", "removed", "generation"),
    *("rules", "hyperparameters"),
)


class ModelFiles:
    """Weights as files in a folder, named by player and version."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder, self._pool = folder, pool
        self._known: dict[str, int] = {}  # checksums of files that this process wrote or read

    def path(self, ref: ModelRef) -> Path:
        """Where a model's bytes are, or would be."""
        return self.folder / f"{ref}.safetensors"

    def holds(self, info: ModelInfo) -> bool:
        """Whether the file is there with the right bytes; they are read the first time only."""
        path = self.path(info.ref)
        if not path.exists() or path.stat().st_size != info.size:
            return False
        if path.name not in self._known:
            self._known[path.name] = checksum_of(path.read_bytes())
        return self._known[path.name] == info.checksum

    def write(self, info: ModelInfo) -> bool:
        """Save a model's bytes, unless they are saved; False when it left the pool meanwhile.

        Raises CheckpointError when the pool's bytes are damaged.
        """
        if self.holds(info):
            return True
        data = self._pool.redis.get(f"{self._pool.prefix}data:{info.ref}")
        if data is None:
            return False
        if checksum_of(data) != info.checksum:
            raise CheckpointError(damaged(info.ref))
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.path(info.ref), data)
        self._known[self.path(info.ref).name] = info.checksum
        return True


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there in full or not at all, even after a power cut."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _mend(path: Path) -> str:
    """Cut off what a crash left of a last line; the id of the last event that is whole."""
    if not path.exists():
        return "0"
    last = "0"
    for entry, _ in read_file(path):
        last = entry
    with path.open("rb+") as file:
        content = file.read()
        whole = content.rfind(b"\n") + 1
        file.truncate(whole)
    return last
