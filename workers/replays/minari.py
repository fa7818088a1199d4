"""Datasets of Minari (minari.farama.org) as episodes, read from their HDF5 files; Minari itself is not needed."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from warren.errors import ConfigurationError, ReplayError
from warren.user_code import install
from workers.replays.episodes import Episodes, check

FILES = ("main_data.hdf5", "data/main_data.hdf5")  # within the folder `data` of a dataset, or the dataset's folder
METADATA = "metadata.json"  # beside the HDF5 file
EPISODE = re.compile(r"episode_(\d+)")
PART = re.compile(r"_index_(\d+)")  # names of a Tuple's parts


def file_in(path: Path) -> Path | None:
    """Return the HDF5 file that `path` is, or that it holds as a dataset's folder; None for any other path."""
    if path.suffix in (".hdf5", ".h5") and path.is_file():
        return path
    return next((path / name for name in FILES if (path / name).is_file()), None)


def read(path: Path, games: int | None = None) -> Episodes:
    """Read the first `games` episodes of a dataset's file, or all.

    Raises ConfigurationError if h5py is not installed, and ReplayError for a file that is not a dataset.
    """
    try:
        h5py: Any = importlib.import_module("h5py")
    except ModuleNotFoundError:
        raise ConfigurationError(f"h5py is not installed, and {path} needs it; {install('h5py')}") from None
    try:
        with h5py.File(path, "r") as file:
            numbered = {int(match[1]): name for name in file if (match := EPISODE.fullmatch(name))}
            groups = [file[name] for _, name in sorted(numbered.items())[:games]]
            steps = [int(group["rewards"].shape[0]) for group in groups]
            kept = [(group, length) for group, length in zip(groups, steps, strict=True) if length]
            if not kept:
                raise ValueError("it has no groups episode_0, episode_1, ...")
            seen = [_leaves(group["observations"], length, h5py) for group, length in kept]
            done = [_leaves(group["actions"], length, h5py) for group, length in kept]
            reward = np.concatenate([np.asarray(group["rewards"], np.float32) for group, _ in kept])
            env = _env(path, file.attrs.get("env_spec"))
    except (OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise ReplayError(f"{path} is not a dataset of Minari: {error}") from None
    ends = np.cumsum([length for _, length in kept]).astype(np.int64)
    found = Episodes(_joined(seen), _joined(done), reward, ends, None, env, str(path))
    check(found)
    return found


def _leaves(node: Any, steps: int, h5py: Any, name: str = "") -> dict[str, np.ndarray]:
    """Return leaf -> [steps, ...]; the observation after the last step is left out."""
    if isinstance(node, h5py.Dataset):
        return {name: np.asarray(node)[:steps]}
    found: dict[str, np.ndarray] = {}
    for key in node:
        own = match[1] if (match := PART.fullmatch(key)) else str(key)
        found |= _leaves(node[key], steps, h5py, f"{name}/{own}" if name else own)
    return found


def _joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _env(path: Path, spec: Any) -> str:
    """Return the id of the dataset's environment from its metadata, "" if they do not name it."""
    beside = path.parent / METADATA
    try:
        spec = json.loads(beside.read_text(encoding="utf-8")).get("env_spec", spec) if beside.is_file() else spec
        return str(json.loads(spec)["id"]) if isinstance(spec, str | bytes) else ""
    except (ValueError, KeyError, TypeError):
        return ""
