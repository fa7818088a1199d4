"""Long bodies between processes of one host: files in shared memory, which their receiver maps and need not copy.

A run's files are in a folder of its own below /dev/shm, which only its user may read. The folder's name is random and
kept in Redis; a message carries it with the file's name, both in hexadecimal digits and nothing else. A file is removed
when its message has been acknowledged, or could not be sent; files that a killed process left are removed with the run,
or by their age.

    folder = SharedFolder(token)
    name = folder.write(body)                      # None where there is no room, or no shared memory
    view = folder.map(name, len(body))             # in another process; stays readable after
    folder.unlink(name)
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from celery.utils.log import get_logger

from warren.errors import ClaimError, ClaimGone

logger = get_logger(__name__)

PLACE = "WARREN_SHARED_MEMORY"  # another folder than /dev/shm, or "off"
SHARE = 0.5  # share of the file system that may be full afterwards: others use it too, and Docker gives 64 MB

_TOKEN = re.compile(r"[0-9a-f]{16}")
_BODY = re.compile(r"[0-9a-f]{32}")
_MARK = re.compile(r"reader-[0-9a-f]{16}")
_PART = re.compile(r"[0-9a-f]{32}\.part")
_FOLDER = re.compile(r"warren-\d+-([0-9a-f]{16})")


def place() -> Path | None:
    """Return where folders are made: WARREN_SHARED_MEMORY, or /dev/shm; None without one, or where it is off."""
    given = os.environ.get(PLACE, "/dev/shm")
    path = Path(given)
    return path if given != "off" and path.is_absolute() and path.is_dir() else None


def new_token() -> str:
    """Draw a random name for a run's folder."""
    return secrets.token_hex(8)


class SharedFolder:
    """One run's folder on this host. Safe to use from any thread. Raises ClaimError for a malformed token."""

    def __init__(self, token: str) -> None:
        if not _TOKEN.fullmatch(token):
            raise ClaimError(f"{token[:80]!r} names no folder of shared memory; it must be 16 hexadecimal digits")
        self.token = token
        base = place()
        self.path = None if base is None else base / f"warren-{os.geteuid()}-{token}"

    def make(self) -> bool:
        """Create the folder unless it exists; return whether this process may use it."""
        if self.path is None:
            return False
        with suppress(OSError):
            self.path.mkdir(mode=0o700)
        return self.is_ours()

    def is_ours(self) -> bool:
        """Return whether the folder exists, belongs to this user, and no other user may enter it."""
        try:
            found = os.lstat(self.path) if self.path is not None else None
        except OSError:
            return False
        return found is not None and stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077 and _is_own(found)

    def write(self, body: bytes) -> str | None:
        """Write a new file and return its name; None where there is no room, or the file cannot be written."""
        if self.path is None or not self._has_room(len(body)):
            return None
        name = secrets.token_hex(16)
        part = self.path / f"{name}.part"  # another name until it is whole, so that half a file is recognised
        try:
            file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed or this process dies: see sweep
                left = memoryview(body)
                while left:
                    left = left[os.write(file, left) :]
                part.rename(self.path / name)
            finally:
                os.close(file)
        except OSError as error:
            logger.debug("%d bytes could not be written to shared memory: %s", len(body), error)
            with suppress(OSError):
                part.unlink()
            return None
        return name

    def map(self, name: str, size: int) -> memoryview:
        """Map a file, read-only, without a copy. The bytes stay after `unlink`, for as long as the view does.

        Raises ClaimGone for a file that is gone, ClaimError for a malformed name and a file of another user or size.
        """
        path = self._body(name)
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            kind = ClaimGone if isinstance(error, FileNotFoundError) else ClaimError
            raise kind(
                f"shared body {path} ({size} bytes) cannot be read: {error.strerror}; either it waited for longer than "
                "its time to live, or this process is on another host than the one it was sent to"
            ) from error
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or not _is_own(found) or found.st_size != size or not size:
                raise ClaimError(f"shared body {path} is damaged: it has {found.st_size} bytes, where {size} were sent")
            mapped = mmap.mmap(file, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ)
        except OSError as error:  # this process may map no more, say: another try would fail again
            raise ClaimError(f"shared body {path} ({size} bytes) cannot be mapped: {error.strerror}") from error
        finally:
            os.close(file)
        return memoryview(mapped)

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there. Raises ClaimError for a malformed name."""
        path = self._body(name)
        with suppress(OSError):
            path.unlink()

    def mark(self, name: str) -> bool:
        """Write or renew a reader's mark, by which a sender knows that both see the same files; return success."""
        try:
            path = self._named(_MARK, name)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            os.utime(path, follow_symlinks=False)
            return True
        except OSError:
            return False

    def has_mark(self, name: str) -> bool:
        """Return whether a reader's mark is here."""
        try:
            return self.is_ours() and _is_own(os.lstat(self._named(_MARK, name)))
        except (OSError, ClaimError):
            return False

    def unmark(self, name: str) -> None:
        """Take a mark away."""
        with suppress(OSError):
            self._named(_MARK, name).unlink()

    def sweep(self, older_than: float) -> None:
        """Remove files older than so many s, and files that killed processes had written in part."""
        if not self.is_ours():
            return
        assert self.path is not None
        oldest = time.time() - older_than
        for path in self._files():
            with suppress(OSError):
                if _PART.fullmatch(path.name):
                    _unlink_if_left(path)
                elif path.lstat().st_mtime < oldest:
                    path.unlink()
        with suppress(OSError):
            self.path.rmdir()  # refused while anything is in it

    def remove(self) -> None:
        """Remove the folder with all that is in it: its run is over."""
        if self.is_ours():
            assert self.path is not None
            for path in self._files():
                with suppress(OSError):
                    path.unlink()
            with suppress(OSError):
                self.path.rmdir()

    def _files(self) -> list[Path]:
        assert self.path is not None
        with suppress(OSError):
            return [path for path in self.path.iterdir() if any(p.fullmatch(path.name) for p in (_BODY, _MARK, _PART))]
        return []

    def _has_room(self, size: int) -> bool:
        assert self.path is not None
        try:
            found = os.statvfs(self.path)
        except OSError:
            return False
        return size <= (found.f_bavail - (1.0 - SHARE) * found.f_blocks) * found.f_frsize

    def _body(self, name: str) -> Path:
        return self._named(_BODY, name)

    def _named(self, pattern: re.Pattern[str], name: str) -> Path:
        if not pattern.fullmatch(name):
            raise ClaimError(f"{name[:80]!r} names nothing in shared memory")
        if self.path is None:
            raise ClaimError("this process has no shared memory: there is no /dev/shm, or WARREN_SHARED_MEMORY is off")
        return self.path / name


def sweep_all(older_than: float) -> None:
    """Sweep every folder of this user, also those of runs that were killed."""
    base = place()
    if base is None:
        return
    for path in base.glob(f"warren-{os.geteuid()}-*"):
        if found := _FOLDER.fullmatch(path.name):
            SharedFolder(found[1]).sweep(older_than)


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid()


def _unlink_if_left(part: Path) -> None:
    """Remove a partly written file, unless its writer is alive. Raises OSError where it is."""
    file = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: it is being written
        part.unlink()
    finally:
        os.close(file)
