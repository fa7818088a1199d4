"""A run's folder: locked before anything is written; files are replaced as a whole; room is kept for the outcome."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from warren.errors import ConfigurationError, WarrenError
from warren.files import read_json, write_whole
from workers.servers.folder_lock import FILE, FolderLock
from workers.servers.record import FOLDER

RESERVE = 256 << 10  # bytes kept for the outcome, in case the disk fills up
OUTCOME, COUNTS, RESERVED = "outcome.json", "counts.json", "reserve"


class RunFolder:
    """The folder at `path`, which belongs to this launcher alone after `take`. Use as a context manager."""

    def __init__(self, path: Path, lock: FolderLock, made: Sequence[Path] = ()) -> None:
        """`made`: the folder and its parents that did not exist before.

        Until `begun` is set, a WarrenError or a Ctrl-C removes them again: no run has begun there.
        """
        self.path, self.lock, self._made = path, lock, made
        self.begun = False
        self._reserve = path / "servers" / RESERVED

    @classmethod
    def take(cls, path: Path) -> RunFolder:
        """Lock the folder and reserve room in it. Raises ConfigurationError if another launcher has it."""
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        folder = cls(path, FolderLock.take(path), made)
        with contextlib.suppress(OSError):  # the disk is full already
            folder._reserve.write_bytes(os.urandom(RESERVE))  # random: a file system may store zeros as nothing
        return folder

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole: a full disk leaves the old one. Raises OSError."""
        write_whole(self.path / name, text)

    def write_last(self, name: str, value: Any, say: Callable[[str], object]) -> None:
        """Write JSON at the end of the run in the reserved room; print a warning if that fails."""
        self._reserve.unlink(missing_ok=True)
        try:
            self.write(name, json.dumps(value, indent=1) + "\n")
        except OSError as error:
            say(f"warning: {self.path / name} could not be written: {error}")

    def read(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file; empty if it cannot be read."""
        return read_json(self.path / name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove half-written files, such as checkpoints and models, of processes that are gone."""
        for part in self.path.iterdir():
            if part.name == FOLDER:  # the servers remove their own files
                continue
            for half in [part] if part.is_file() else [*part.rglob("*.tmp")]:
                with contextlib.suppress(OSError):
                    if half.suffix == ".tmp":
                        half.unlink()

    def _server_logs(self) -> list[Path]:
        """List the servers' logs: they may explain a failed start better than the error does."""
        return [log for log in (self.path / FOLDER).rglob("*.log") if log.is_file() and log.stat().st_size]

    def _discard(self, kept: Sequence[Path]) -> None:
        """Remove the folders that this launcher made, except the files `kept`."""
        if self.path not in self._made:
            return
        lock = self.path / FOLDER / FILE
        _remove(self.path, [*kept, lock])
        with contextlib.suppress(OSError):
            lock.unlink()  # last, as another launcher may have the folder from then on
        for folder in (lock.parent, *self._made):
            with contextlib.suppress(OSError):  # it holds files that are kept, or another run has come
                folder.rmdir()

    def release(self) -> None:
        """Release the folder for other launchers."""
        self._give_up_reserve()
        self.lock.release()

    def _give_up_reserve(self) -> None:
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_up_reserve()
        if not self.begun and isinstance(error, (WarrenError, KeyboardInterrupt)):
            self._discard(() if isinstance(error, (ConfigurationError, KeyboardInterrupt)) else self._server_logs())
        self.lock.release()


def _remove(folder: Path, kept: Sequence[Path]) -> None:
    """Empty a folder, except for the files `kept`."""
    for path in sorted(folder.rglob("*"), reverse=True):  # contents before their folder
        with contextlib.suppress(OSError):  # a folder with a kept file
            if path.is_symlink() or path.is_file():
                if path not in kept:
                    path.unlink()
            else:
                path.rmdir()
