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
LOOK = 0.5  # s that a look takes at most, on a busy machine


class FolderLock:
    """Held from `take` until `release`, or until this process is gone. The file names the process that holds it."""

    def __init__(self, folder: Path, file: TextIO) -> None:
        self.folder, self._file = folder, file

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Raises ConfigurationError, naming the holder, when another process has the folder; nothing is changed then.

        Two runs in one folder would overwrite each other's configuration, so this comes before anything is written.
        """
        private_folder(folder / FOLDER)
        file = (folder / FOLDER / FILE).open("a+")
        if not _locked(file):
            file.seek(0)
            holder = file.read().strip()
            file.close()
            by = f" ({holder})" if holder else ""
            raise ConfigurationError(
                f"another run uses the folder {folder}{by}; stop that one first, or give this one its own"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        return cls(folder, file)

    def release(self) -> None:
        """Let another run have the folder. Safe to call twice."""
        self._file.close()


def _locked(file: TextIO) -> bool:
    """Lock it; who only looks whether it is locked holds it for a moment as well, so one try says nothing."""
    deadline = time.monotonic() + LOOK
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.01)


def is_locked(folder: Path) -> bool:
    """Whether a launcher has the folder at the moment."""
    try:
        with (folder / FOLDER / FILE).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
