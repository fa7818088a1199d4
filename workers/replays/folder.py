"""Records of matches in a folder of append-only files, the oldest of which are removed when all reach a bound.

An entry is its length and its CRC-32, four bytes each, and the record. A process that is killed while it writes leaves
half an entry at a file's end, which readers pass over; the next process begins another file.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from workers.replays.match_record import RecordedMatch

FOLDER = "replays"  # in a run's folder
SUFFIX = ".matches"
FILES = 8  # files of a full folder; the oldest is removed as a whole
HEAD = struct.Struct("<II")  # length, CRC-32


class ReplayWriter:
    """Appends records to the files of `folder`, all of which together stay within `bound` bytes."""

    def __init__(self, folder: Path, bound: int) -> None:
        self._folder, self._bound = folder, bound
        self._file: BinaryIO | None = None
        self._written = 0  # bytes in the open file

    def append(self, records: list[bytes]) -> None:
        """Add records; on return the operating system has them. Raises OSError, after which some may be there."""
        for record in records:
            entry = HEAD.pack(len(record), zlib.crc32(record)) + record
            try:
                self._file_for(len(entry)).write(entry)
            except OSError:
                self.close()  # the file may end with half an entry
                raise
            self._written += len(entry)
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()

    def _file_for(self, size: int) -> BinaryIO:
        if self._file is None or self._written + size > max(size, self._bound // FILES):
            self.close()
            self._folder.mkdir(parents=True, exist_ok=True)
            found = files(self._folder)
            held = sum(path.stat().st_size for path in found)
            room = max(size, self._bound // FILES)
            while found and held + room > self._bound:
                held -= found[0].stat().st_size
                found.pop(0).unlink()
            number = int(found[-1].stem) + 1 if found else 0
            self._file = (self._folder / f"{number:08d}{SUFFIX}").open("xb")
            self._written = 0
        return self._file


def files(folder: Path) -> list[Path]:
    """Return the files of a folder, the oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def read(folder: Path) -> Iterator[RecordedMatch]:
    """Yield the matches in a folder, the oldest first, each once. Raises ReplayError for an invalid record."""
    seen: set[str] = set()
    for path in files(folder):
        with contextlib.suppress(FileNotFoundError):  # the oldest may be removed meanwhile
            for record in entries(path.read_bytes()):
                match = RecordedMatch.from_bytes(record)
                if match.match not in seen:  # else it was sent twice
                    seen.add(match.match)
                    yield match


def count(folder: Path) -> int:
    """Return how many records are in a folder, without unpacking them; one that was sent twice counts twice."""
    number = 0
    for path in files(folder):
        with contextlib.suppress(FileNotFoundError):
            number += sum(1 for _ in entries(path.read_bytes()))
    return number


def entries(data: bytes) -> Iterator[bytes]:
    """Yield the records in a file's bytes, up to the first torn one."""
    place = 0
    while place + HEAD.size <= len(data):
        length, checksum = HEAD.unpack_from(data, place)
        record = data[place + HEAD.size : place + HEAD.size + length]
        if len(record) < length or zlib.crc32(record) != checksum:
            return
        yield record
        place += HEAD.size + length
