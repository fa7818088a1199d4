"""Files that are there in full or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes | str) -> None:
    """Write beside `path`, then rename, so that a full disk or a power cut leaves the old file. Raises OSError.

    A process that is killed meanwhile leaves a hidden file whose name ends with ".tmp".
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} where the file is missing or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
