"""A run's folder: locked before anything is written, whole files only, room kept for the last on a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from warren.errors import ConfigurationError, WarrenError
from warren.files import read_json, write_whole
from workers.servers.folder_lock import FolderLock
from workers.servers.record import FOLDER

RESERVE = 256 << 10  # bytes that are kept for the outcome, should the disk fill up meanwhile
OUTCOME, COUNTS, RESERVED = "outcome.json", "counts.json", "reserve"


class RunFolder:
    """The folder at `path`, from `take` on this launcher's alone. Use as a context manager."""

    def __init__(self, path: Path, lock: FolderLock, made: Sequence[Path] = ()) -> None:
        """`made`: the folder and those above it that were not there before.

        Until `begun` is set, an error of Warren's own or a Ctrl-C removes those again: no run has begun there.
        """
        self.path, self.lock, self._made = path, lock, made
        self.begun = False
        self._reserve = path / "servers" / RESERVED

    @classmethod
    def take(cls, path: Path) -> RunFolder:
        """Lock it, then keep room in it. Raises ConfigurationError when another launcher has it; nothing is changed."""
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        folder = cls(path, FolderLock.take(path), made)
        with contextlib.suppress(OSError):  # full already: what can be written will be
            folder._reserve.write_bytes(os.urandom(RESERVE))  # no zeros: a file system may store those as nothing
        return folder

    def write(self, name: str, text: str) -> None:
        """Replace a file by another as a whole: a full disk leaves the one before. Raises OSError."""
        write_whole(self.path / name, text)

    def write_last(self, name: str, value: Any, say: Callable[[str], object]) -> None:
        """Write JSON at the end of the run: with the room that was kept for it, and without an error."""
        self._reserve.unlink(missing_ok=True)
        try:
            self.write(name, json.dumps(value, indent=1) + "\n")
        except OSError as error:
            say(f"warning: {self.path / name} could not be written: {error}")

    def read(self, name: str) -> dict[str, Any]:
        """A file of JSON; empty when there is none that can be read."""
        return read_json(self.path / name)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what was begun and never finished: half-written checkpoints and models, of processes that are gone."""
        for part in self.path.iterdir():
            if part.name == FOLDER:  # the servers', which look after their own
                continue
            for half in [part] if part.is_file() else [*part.rglob("*.tmp")]:
                with contextlib.suppress(OSError):
                    if half.suffix == ".tmp":
                        half.unlink()

    def _server_logs(self) -> list[Path]:
        """List what servers have printed: it may say more of why they did not begin than the error does."""
        return [log for log in (self.path / FOLDER).rglob("*.log") if log.is_file() and log.stat().st_size]

    def _discard(self, kept: Sequence[Path]) -> None:
        """Remove the folder, and those above it, unless they were there before; but for the files `kept`."""
        for folder in self._made:
            if folder == self.path:
                _remove(folder, kept)
            else:
                with contextlib.suppress(OSError):  # another run has come
                    folder.rmdir()

    def release(self) -> None:
        """Let another launcher have it."""
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
        self.lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.begun and isinstance(error, (WarrenError, KeyboardInterrupt)):
            self._discard(() if isinstance(error, (ConfigurationError, KeyboardInterrupt)) else self._server_logs())
        self.release()


def _remove(folder: Path, kept: Sequence[Path]) -> None:
    """Remove a folder; of one that holds files to be `kept` all else."""
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        with contextlib.suppress(OSError):  # a folder that holds something that is kept
            if path.is_symlink() or path.is_file():
                if path not in kept:
                    path.unlink()
            else:
                path.rmdir()
