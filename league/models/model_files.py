"""Weights as files, one a model, written so that a file is either whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from league.matchmaking.view import ModelRef
from league.models.model import ModelInfo, checksum_of, damaged
from league.models.pool import Pool
from warren.errors import CheckpointError, PlayerError
from warren.files import write_whole


class ModelFiles:
    """Weights as files in a folder, named by player and version."""

    def __init__(self, folder: Path, pool: Pool) -> None:
        self.folder, self._pool = folder, pool
        self._known: dict[str, int] = {}  # checksums of files that this process wrote or read

    def path(self, ref: ModelRef) -> Path:
        """Return the path of a model's file, which may not exist."""
        return self.folder / f"{ref}.safetensors"

    def all(self) -> Iterator[tuple[Path, ModelRef]]:
        """Yield each file with its model; files of other names, such as copies by hand, are left alone."""
        for path in self.folder.glob("*.safetensors"):
            try:
                ref = ModelRef.parse(path.stem)
            except PlayerError:
                continue
            yield path, ref

    def holds(self, info: ModelInfo) -> bool:
        """Return True if the model's file has the right bytes; it is read the first time only."""
        path = self.path(info.ref)
        if not path.exists() or path.stat().st_size != info.size:
            return False
        if path.name not in self._known:
            self._known[path.name] = checksum_of(path.read_bytes())
        return self._known[path.name] == info.checksum

    def read(self, ref: ModelRef, checksum: int) -> bytes:
        """Return a model's bytes. Raises CheckpointError for a file that is missing or damaged."""
        path = self.path(ref)
        data = path.read_bytes() if path.exists() else b""
        if checksum_of(data) != checksum:
            raise CheckpointError(f"{path} is missing or damaged; restore it from a backup, or take out its entry")
        self._known[path.name] = checksum
        return data

    def write(self, info: ModelInfo) -> bool:
        """Save a model's bytes unless they are saved; return False if the model left the pool meanwhile.

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
