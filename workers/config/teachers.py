"""The teacher of a run, named by the setting `teacher` of its algorithm: its place and its policy.

    runs/cartpole/TRIAL                        a run folder: its newest checkpoint
    runs/kuhn/TRIAL/players/main               a league's player: its newest checkpoint
    runs/cartpole/TRIAL/checkpoints/00000042.safetensors
    main@1200                                  in a league: a model of its pool

A student's folder keeps a copy of its teacher, so a resumed run has the same one even if the original has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from agents import build_policy, checkpoints
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from warren.errors import CheckpointError, ConfigurationError, PoolError
from warren.files import write_whole

SETTING = "algorithm.teacher"
KEPT = "teacher.safetensors"  # the copy, in the student's folder
Pool = Callable[[ModelRef], bytes]  # weights of a model; raises PoolError if the pool lacks it
NetworkOf = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # player and stamp of weights -> network
Saved = tuple[Mapping[str, Tensor], Mapping[str, Any]]  # weights, and the settings of their network


def name_of(settings: Mapping[str, Any]) -> str | None:
    """Return the teacher that these settings of an algorithm name, or None."""
    name = settings.get("teacher")
    return None if name is None else str(name)


def reference(name: str) -> ModelRef | None:
    """Return the model of a league's pool that `name` refers to; None where it is a path."""
    player, at, version = name.rpartition("@")
    return ModelRef(player, int(version)) if at and version.isdigit() and not Path(name).exists() else None


def load(name: str, student: Policy, folder: Path | None) -> tuple[Policy, Mapping[str, Any]]:
    """Load the teacher from its copy in the student's `folder`, else from the path `name`.

    Returns (policy, settings of its network). Raises ConfigurationError for a teacher that is missing, is damaged, or
    takes other observations or actions.
    """
    try:
        tensors, network = _kept(name, folder) or _saved(name)
        return _built(network, tensors, student, name), network
    except CheckpointError as error:
        raise ConfigurationError(f"{SETTING}: {error}") from None


def is_kept(name: str, folder: Path) -> bool:
    """Return whether the student's folder has a copy of the teacher `name`."""
    return _kept(name, folder) is not None


def from_pool(name: str, pool: Pool, network_of: NetworkOf, student: Policy) -> tuple[Policy, Mapping[str, Any]]:
    """Build the teacher from a model of the student's league; return it and the settings of its network.

    Raises ConfigurationError where the pool lacks it.
    """
    ref = reference(name)
    assert ref is not None
    try:
        tensors, stamp = checkpoints.weights_from_bytes(pool(ref))
        network = network_of(ref.player, stamp)
        return _built(network, tensors, student, name), network
    except (CheckpointError, PoolError) as error:
        raise ConfigurationError(f"{SETTING}: {error}") from None


def keep(teacher: Policy, network: Mapping[str, Any], name: str, folder: Path) -> None:
    """Write a copy of the teacher into the student's folder, unless it is there."""
    if not is_kept(name, folder):
        folder.mkdir(parents=True, exist_ok=True)
        weights = checkpoints.weights_to_bytes(teacher, {"network": dict(network), "teacher": name})
        write_whole(folder / KEPT, weights)


def file_of(name: str, setting: str = SETTING) -> Path:
    """Return the checkpoint, or the folder of checkpoints, at the path `name`.

    Raises ConfigurationError, for `setting`, where there is none.
    """
    path = Path(name)
    if (path / "checkpoints").is_dir():
        return path / "checkpoints"
    if (path / "players").is_dir():
        players = ", ".join(sorted(str(player) for player in (path / "players").iterdir()))
        raise ConfigurationError(f"{setting}: {name} is a league's run folder; name one of its players: {players}")
    if not path.exists():
        raise ConfigurationError(
            f"{setting}: {name} does not exist; name a run folder or a checkpoint, as in runs/cartpole/TRIAL, or "
            "in a league a model of its pool, as in main@1200"
        )
    return path


def _kept(name: str, folder: Path | None) -> Saved | None:
    if folder is None or not (folder / KEPT).exists():
        return None
    tensors, meta = checkpoints.weights_from_bytes((folder / KEPT).read_bytes())
    return (tensors, meta["network"]) if meta.get("teacher") == name else None  # another teacher was chosen since


def _saved(name: str) -> Saved:
    checkpoint = checkpoints.load(file_of(name))
    return checkpoint.policy, checkpoint.meta.get("network") or {}


def _built(network: Mapping[str, Any], tensors: Mapping[str, Tensor], student: Policy, name: str) -> Policy:
    policy = build_policy(network, student.learning_space, student.action_space, 0)
    checkpoints.load_weights(policy, tensors, f"teacher {name}")
    return policy
