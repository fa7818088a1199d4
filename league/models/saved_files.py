"""Files of a league that was saved to a folder: JSON, the list of its models, and their weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from league.matchmaking.view import ModelRef
from league.models.model import REDIS, ModelInfo, checksum_of
from warren.errors import CheckpointError, LeagueError, WarrenError

INDEX, MODELS = "models.json", "models"
Saved = TypeVar("Saved")


def frozen_models(folder: Path) -> dict[str, Path]:
    """Return the files of a saved league's models, by names such as main@1200."""
    return {path.stem: path for path in (folder / MODELS).glob("*@*.safetensors")}


def model_bytes(folder: Path, model: ModelRef) -> tuple[bytes, Path]:
    """Return the weights of a saved league's model, and their file.

    Raises CheckpointError for a file that is missing, or whose bytes are not those that the list of models names.
    """
    path = folder / MODELS / f"{model}.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: {error}") from None
    # Leagues whose list was lost are read all the same: the list only tells whether the bytes changed.
    if any(info.ref == model and info.checksum != checksum_of(data) for info in listed(folder)):
        raise CheckpointError(f"{path} is damaged: its checksum is not that of {INDEX}; restore it from a backup")
    return data, path


def listed(folder: Path) -> list[ModelInfo]:
    """Return the list of a saved league's models; empty without one. Raises LeagueError for a damaged one."""
    return read_saved(folder / INDEX, lambda entries: [_info(entry) for entry in entries], [])


def read_saved(path: Path, made: Callable[[Any], Saved], missing: Saved) -> Saved:
    """Return what `made` makes of the JSON in a file of a saved league; `missing` if there is no file."""
    try:
        return made(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else missing
    except json.JSONDecodeError as error:
        raise LeagueError(f"{path} is not JSON ({error}); restore the file from a backup") from None
    except (KeyError, TypeError, ValueError, AttributeError, WarrenError) as error:
        raise LeagueError(f"{path} holds something else ({error!r}); restore the file from a backup") from None


def entry_of(info: ModelInfo) -> dict[str, Any]:
    """Return the entry of a model in the list of models."""
    fields = ("step", "created", "checksum", "size", "frozen", "kept_by")
    entry = {"ref": str(info.ref), "parent": str(info.parent or ""), "attributes": dict(info.attributes)}
    return {**entry, **{name: getattr(info, name) for name in fields}}


def _info(entry: dict[str, Any]) -> ModelInfo:
    ref = ModelRef.parse(entry["ref"])
    return ModelInfo(
        player=ref.player,
        version=ref.version,
        step=entry["step"],
        created=entry["created"],
        size=entry["size"],
        checksum=entry["checksum"],
        frozen=entry["frozen"],
        parent=ModelRef.parse(entry["parent"]) if entry["parent"] else None,
        place=REDIS,
        attributes=entry["attributes"],
        kept_by=entry.get("kept_by", ""),
    )
