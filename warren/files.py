"""Files that are there in full or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from io import FileIO
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Write beside `path`, then rename, so that a full disk or a power cut leaves the old file.

    Raises OSError that names `path`. `mode`: the file's permissions, before the umask. A process that is killed
    meanwhile leaves a hidden file whose name ends with ".tmp".
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk names none, others `beside`


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} where the file is missing or damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def append_whole(file: FileIO, data: bytes) -> None:
    """Append `data` to an unbuffered file, or nothing. Raises OSError where the disk has no room for all of it."""
    begin = os.fstat(file.fileno()).st_size
    written = file.write(data) or 0
    if written < len(data):
        file.truncate(begin)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.name))


def drop_half_line(path: Path) -> None:
    """Cut off an incomplete last line of a killed process, or the next point would be appended to it and lost."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            with path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)
