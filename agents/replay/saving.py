"""A replay in one file, folder/NAME.npz: arrays, and JSON for the rest; nothing in it is ever unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from agents.replay.interface import Buffer
from warren.errors import CheckpointError

META = "meta"  # the array of bytes that holds the JSON


def save(path: Path, buffer: Buffer, more: Mapping[str, Any]) -> None:
    """Write what `buffer` keeps, and `more` as JSON can hold it, atomically. Raises OSError when the disk refuses."""
    arrays, meta = buffer.state()
    document = json.dumps({"replay": meta, "more": dict(more)}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            whole: Any = {META: np.frombuffer(document, np.uint8), **arrays}
            np.savez(file, allow_pickle=False, **whole)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path, buffer: Buffer) -> dict[str, Any]:
    """Fill an empty `buffer` from a file of `save`; return the `more` that was saved.

    Raises CheckpointError for a file that is missing or damaged, or of another replay; `buffer` is of no use then.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            document = json.loads(file[META].tobytes())
            buffer.load_state({name: file[name] for name in file.files if name != META}, document["replay"])
    except CheckpointError:
        raise
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise CheckpointError(f"replay {path} cannot be read: {error}") from None
    more: dict[str, Any] = document["more"]
    return more
