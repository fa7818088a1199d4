"""The model pool in Redis: weights of each player by version, frozen ones immutable, listed without loading.

    pool = Pool(redis, "warren.my-run:")
    pool.put("main", version=12, step=48_000, data=safetensors_bytes)     # acknowledged when this returns True
    pool.freeze("main", 12)
    model = pool.get("main", 12)
    model = pool.newest("main", newer_than=11)

Of weights that are not frozen only the newest few versions are kept. Frozen ones may be spilled to disk by the keeper
(league.models.keeper); they come back when a reader asks for them.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError, ResponseError

from league.matchmaking.view import ModelRef
from league.models.cache import ByteCache
from league.models.model import DISK, Model, ModelInfo, checksum_of, damaged, info_from
from league.redis.scripts import Scripts
from league.redis.texts import pairs, text
from league.rules.names import ALLOWED, NAME
from league.state.fields import to_json
from warren.errors import CheckpointError, PoolError

KEPT = 2  # versions of a player that are not frozen: a process that was just told of one can still fetch it
CACHE_BYTES = 256 << 20
SENT_MS = 60_000  # ms for which sent bytes are kept if their sender died before they entered the pool
HAND, LEAGUE = "hand", "league"  # who keeps a frozen model
ASK_EVERY = 1.0  # s between requests for a spilled model: a keeper that died may have taken a request along


class Pool:
    """The weights of a run's players; keys begin with `prefix`. Safe to use from any thread.

    `folder` is where the keeper's files are, if this machine sees them: spilled models are then read from there.
    Otherwise the keeper is asked to bring them back, for up to `patience` s. `replica` is a client that reads from
    replicas: these serve the weights, as far as they have them, and the master serves the models' entries.
    """

    def __init__(
        self,
        redis: Any,
        prefix: str,
        *,
        replica: Any = None,
        folder: Path | None = None,
        kept: int = KEPT,
        cache_bytes: int = CACHE_BYTES,
        patience: float = 30.0,
    ) -> None:
        self.redis, self.prefix, self._replica = redis, f"{prefix}pool:", replica
        self.folder, self._kept, self._patience = folder, kept, patience
        self._says_when_on_disk = True
        self._scripts = Scripts(redis, self.prefix, library="pool_lib")
        self._cache: ByteCache[Model] = ByteCache(cache_bytes)

    def put(self, player: str, version: int, step: int, data: bytes, parent: ModelRef | None = None) -> bool:
        """Store `data` as the newest weights of `player`; return False if the pool holds this version or a newer one.

        Raises PoolError for an invalid name of a player, or when Redis has no memory left for the bytes.
        """
        if not NAME.fullmatch(player):
            raise PoolError(f"player name {player!r} is not {ALLOWED}; choose another")
        sent = f"{self.prefix}sent:{secrets.token_hex(8)}"
        stamps = (step, repr(time.time()), checksum_of(data), len(data), str(parent or ""), self._kept)
        return self._send(sent, data, "pool_put", player, version, sent, *stamps)

    def version(self, player: str) -> int | None:
        """Return the newest version of `player`, None when there is none; loads no weights."""
        version = self.redis.hget(f"{self.prefix}newest", player)
        return None if version is None else int(version)

    def newest(self, player: str, newer_than: int = -1) -> Model | None:
        """Return the newest weights of `player`, or None if they are not newer than `newer_than`.

        Raises CheckpointError if the bytes do not match their checksum.
        """
        while True:
            version = self.version(player)
            if version is None or version <= newer_than:
                return None
            model = self._find(ModelRef(player, version))
            if model is not None:
                return model
            # It was replaced several times between the two questions: ask again.

    def get(self, player: str, version: int) -> Model:
        """Return one version. Raises PoolError when the pool lacks it, CheckpointError when it is damaged."""
        model = self._find(ModelRef(player, version))
        if model is None:
            raise PoolError(
                f"model {player}@{version} is not in the pool: it was removed, or replaced by newer ones before it was "
                "frozen; freeze what has to last"
            )
        return model

    def freeze(self, player: str, version: int | None = None, kept_by: str = HAND) -> ModelRef:
        """Make a version (default: the newest) immutable, and keep it: for good, or with `kept_by="league"` for as long
        as a player of the league needs it. Safe to repeat.

        Raises PoolError if the pool lacks it.
        """
        version = self.version(player) if version is None else version
        ref = ModelRef(player, -1 if version is None else version)
        with self.redis.client() as own:  # Redis waits for what came by the connection that asks
            if not self._scripts("pool_freeze", player, ref.version, repr(time.time()), kept_by, client=own):
                which = f"model {ref}" if version is not None else f"a model of {player!r}"
                raise PoolError(f"{which} is not in the pool, so it cannot be frozen; put it first")
            self._wait_for_disk(own)
        return ref

    def describe(self, ref: ModelRef, **attributes: Any) -> None:
        """Set attributes (JSON values) of a model, frozen or not. Raises PoolError when the pool lacks it."""
        flat = [item for name, value in attributes.items() for item in (name, to_json(value))]
        if not self._scripts("pool_describe", str(ref), *flat):
            raise PoolError(f"model {ref} is not in the pool; `python -m league.models list` shows what is")

    def info(self, ref: ModelRef) -> ModelInfo | None:
        """Return a model's entry, without loading its weights; None when the pool lacks it."""
        fields = pairs(self.redis.hgetall(f"{self.prefix}model:{ref}"))
        return info_from(fields) if fields else None

    def models(self, player: str | None = None) -> list[ModelInfo]:
        """Return all models (of one player), oldest version first; loads no weights."""
        players = [player] if player else sorted(text(name) for name in self.redis.hkeys(f"{self.prefix}newest"))
        with self.redis.pipeline(transaction=False) as pipeline:
            for name in players:
                pipeline.zrange(f"{self.prefix}versions:{name}", 0, -1)
            refs = [text(ref) for found in pipeline.execute() for ref in found]
        with self.redis.pipeline(transaction=False) as pipeline:
            for ref in refs:
                pipeline.hgetall(f"{self.prefix}model:{ref}")
            return [info_from(pairs(fields)) for fields in pipeline.execute() if fields]

    def lineage(self, ref: ModelRef) -> list[ModelRef]:
        """Return the model, the one from which it began, and so on; the last may have left the pool."""
        line = [ref]
        while (info := self.info(line[-1])) is not None and info.parent is not None and info.parent not in line:
            line.append(info.parent)
        return line

    def remove(self, ref: ModelRef, frozen: bool = False) -> None:
        """Remove a model; a frozen one only with `frozen`. Raises PoolError if it may not be removed or is missing."""
        answer = text(self._scripts("pool_remove", ref.player, ref.version, int(frozen)))
        if answer == "unknown":
            raise PoolError(f"model {ref} is not in the pool; `python -m league.models list` shows what is")
        if answer == "frozen":
            raise PoolError(f"model {ref} is frozen, and players of the league may need it; say so to remove it anyway")
        self._cache.drop(str(ref))

    def restore(self, info: ModelInfo, data: bytes) -> None:
        """Put a model of a snapshot back, whatever else the pool holds. Safe to repeat.

        Raises PoolError if the pool holds another model of that name.
        """
        sent = f"{self.prefix}sent:{secrets.token_hex(8)}"
        attributes = [item for name, value in info.attributes.items() for item in (name, to_json(value))]
        stamps = (info.step, repr(info.created), info.checksum, info.size, str(info.parent or ""))
        kept = (int(info.frozen), info.kept_by)
        held = self._sent(sent, data, "pool_restore", info.player, info.version, sent, *stamps, *kept, *attributes)
        if text(held) != str(info.checksum):
            raise PoolError(f"the pool holds another {info.ref} than the snapshot; remove it, or use another run")

    # Spilled models; league.models.keeper decides which.

    def wanted(self) -> list[ModelRef]:
        """Return spilled models that readers wait for and no keeper has brought back, in the order of requests."""
        names = dict.fromkeys(text(name) for name in self.redis.lrange(f"{self.prefix}wanted", 0, -1))
        return [ModelRef.parse(name) for name in names if name]  # an empty entry tells the keeper of a freeze

    def spill(self, ref: ModelRef) -> bool:
        """Free the memory of a frozen model whose bytes are on disk; return False if it uses none or is not frozen."""
        return bool(self._scripts("pool_spill", str(ref)))

    def bring_back(self, ref: ModelRef, data: bytes) -> bool:
        """Put the bytes of a spilled model back into Redis; return False if another process did so first."""
        sent = f"{self.prefix}sent:{secrets.token_hex(8)}"
        return self._send(sent, data, "pool_return", str(ref), sent, repr(time.time()))

    def file(self, ref: ModelRef, folder: Path | None = None) -> Path | None:
        """Return where the keeper saves a model; None if this process was not told of its folder."""
        folder = folder or self.folder
        return None if folder is None else folder / f"{ref}.safetensors"

    def _wait_for_disk(self, own: Any) -> None:
        """Wait until the append-only file holds all that `own` wrote so far, if the server can tell (from Redis 7.2).

        An older server, or one without such a file, keeps what its own settings promise.
        """
        if self._says_when_on_disk:
            try:
                own.execute_command("WAITAOF", 1, 0, 5000)
            except ResponseError:
                self._says_when_on_disk = False

    def _send(self, sent: str, data: bytes, script: str, *arguments: Any) -> bool:
        return bool(self._sent(sent, data, script, *arguments))

    def _sent(self, sent: str, data: bytes, script: str, *arguments: Any) -> Any:
        """Send bytes and run the script that enters them, in one round trip; return its answer."""
        try:
            (answer,) = self._scripts.together((script, *arguments), before=("SET", sent, data, "PX", SENT_MS))
        except ResponseError as error:
            raise PoolError(
                f"Redis took no {len(data)} bytes of weights ({error}); give it more memory, or the keeper less"
            ) from None
        return answer

    def _find(self, ref: ModelRef) -> Model | None:
        """Return a model from this process's cache, from Redis, or from disk; None when the pool lacks it."""
        kept = self._cache.get(str(ref))
        if kept is not None:
            return kept
        deadline, ask_at = time.monotonic() + self._patience, 0.0
        replicated = self._from_replica(ref)
        while True:
            with self.redis.pipeline(transaction=False) as pipeline:
                pipeline.hgetall(f"{self.prefix}model:{ref}")
                pipeline.zadd(f"{self.prefix}used", {str(ref): time.time()}, xx=True)
                if replicated is None:
                    pipeline.get(f"{self.prefix}data:{ref}")
                fields, _, *rest = pipeline.execute()
            if not fields:
                return None
            info = info_from(pairs(fields))
            if replicated is not None and checksum_of(replicated) != info.checksum:
                replicated = None  # the replica is behind, for instance since before a takeover: ask the master
                continue
            data = rest[0] if rest else replicated
            if data is None and info.place == DISK:
                data = self._from_disk(ref)
            if data is not None:
                if checksum_of(data) != info.checksum:
                    raise CheckpointError(damaged(ref))
                model = Model(info.player, info.version, info.step, info.created, data)
                self._cache.put(str(ref), model)
                return model
            if info.place == DISK and time.monotonic() >= ask_at:
                self.redis.rpush(f"{self.prefix}wanted", str(ref))
                ask_at = time.monotonic() + ASK_EVERY
            if time.monotonic() > deadline:
                raise PoolError(self._missing(info))
            time.sleep(0.01)  # until the keeper has brought it back, or the writer that replaces it is done

    def _from_replica(self, ref: ModelRef) -> bytes | None:
        if self._replica is None:
            return None
        try:
            data: bytes | None = self._replica.get(f"{self.prefix}data:{ref}")
        except RedisError:  # no replica answers; ask the master
            return None
        return data

    def _missing(self, info: ModelInfo) -> str:
        if info.place == DISK:
            return (
                f"model {info.ref} was spilled to disk and was not brought back within {self._patience} s; is a "
                "keeper running, with the folder that holds it?"
            )
        return (
            f"model {info.ref} is listed and its bytes are gone; does Redis evict keys? Its maxmemory-policy has to be "
            "noeviction. Restore a snapshot"
        )

    def _from_disk(self, ref: ModelRef) -> bytes | None:
        path = self.file(ref)
        if path is None or not path.exists():
            return None
        data = path.read_bytes()
        with contextlib.suppress(PoolError):  # Redis may lack the memory; this process has the bytes anyway
            self.bring_back(ref, data)
        return data
