"""The lock of a run's folder: one launcher at a time, held until this process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import TextIO

from warren.errors import ConfigurationError
from workers.servers.process import private_folder
from workers.servers.record import FOLDER

FILE = "lock"
LOOK = 0.5  # s for which `is_locked` elsewhere may hold the lock, on a busy machine


class FolderLock:
    """A lock held from `take` until `release` or the end of this process. The file names the process."""

    def __init__(self, folder: Path, file: TextIO) -> None:
        self.folder, self._file = folder, file

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Lock the folder. Raises ConfigurationError if it cannot be made, or if another process, named, has it.

        Two runs in one folder would overwrite each other's configuration, so it is locked before anything is written.
        """
        try:
            path = private_folder(folder / FOLDER) / FILE
            file = path.open("a+")
        except OSError as error:
            raise ConfigurationError(
                f"folder: the run folder {folder} cannot be written ({error.strerror}); choose another folder=..."
            ) from None
        if not _locked(file):
            file.seek(0)
            holder = file.read().strip()
            file.close()
            by = f" ({holder})" if holder else ""
            raise ConfigurationError(
                f"another run uses the folder {folder}{by}; stop that one first, or give this one its own"
            ) from None
        if not _is_at(file, path):  # the holder before, whose start failed, has removed its folder
            file.close()
            return cls.take(folder)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        return cls(folder, file)

    def release(self) -> None:
        """Release the folder for another run. Idempotent."""
        self._file.close()


def _locked(file: TextIO) -> bool:
    """Lock the file and return whether that worked; tries for LOOK s, as `is_locked` also locks it for a moment."""
    deadline = time.monotonic() + LOOK
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.01)


def _is_at(file: TextIO, path: Path) -> bool:
    """Return whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def is_locked(folder: Path) -> bool:
    """Return whether a launcher has the folder at the moment."""
    try:
        with (folder / FOLDER / FILE).open("r", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
