"""Arrays of a replay: in memory up to a bound, the largest ones in files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from warren.errors import ConfigurationError

BLOCK = 1 << 20  # bytes written at once

Shape = tuple[tuple[int, ...], np.dtype]  # shape, dtype


def allocated(shapes: Mapping[str, Shape], in_memory: int | None, folder: Path | None) -> dict[str, np.ndarray]:
    """Return arrays of zeros by name: as many as fit into `in_memory` bytes, the smallest first, the rest in `folder`.

    `in_memory` None: no bound. Raises ConfigurationError where the disk has no room for the rest, or `folder` is None.
    """
    sizes = {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in shapes.items()}
    left, arrays = in_memory, {}
    for name in sorted(sizes, key=lambda name: sizes[name]):
        shape, dtype = shapes[name]
        if left is None or sizes[name] <= left:
            arrays[name] = np.zeros(shape, dtype)
            left = None if left is None else left - sizes[name]
        else:
            left = 0
            arrays[name] = _in_file(folder, name, shape, dtype, sizes[name])
    return {name: arrays[name] for name in shapes}


def _in_file(folder: Path | None, name: str, shape: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
    what = f"replay: {name} of {size / 2**30:.1f} GiB is more than the memory that it may take (replay.memory)"
    if folder is None:
        raise ConfigurationError(f"{what}; raise it, or lower replay.capacity")
    path = folder / f"{name}.array"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            _fill(file, size)  # now: later a full disk would kill this process
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigurationError(
            f"{what}, and {path} cannot hold it: {error.strerror}; make room there, or lower replay.capacity"
        ) from None
    mapped = np.memmap(path, dtype, "r+", shape=shape)
    path.unlink()  # it lasts as long as the mapping, so a killed process leaves nothing behind
    return mapped.view(np.ndarray)


def _fill(file: BinaryIO, size: int) -> None:
    """Take `size` > 0 bytes of the disk. Raises OSError."""
    if hasattr(os, "posix_fallocate"):  # macOS has none
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for begin in range(0, size, BLOCK):
        file.write(bytes(min(BLOCK, size - begin)))
