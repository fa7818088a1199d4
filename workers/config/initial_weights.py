"""The weights with which a league's player begins and to which a reset returns: its setting `initial`.

    runs/cartpole/TRIAL        a run folder or a checkpoint, named as a teacher is
    main@1200                  a frozen model of the league
    main                       a player of the league: its newest weights, whenever this player begins or is reset

The network has to be the league's. Null: fresh weights.
"""

from __future__ import annotations

from collections.abc import Container

from agents import checkpoints
from agents.policies import Policy
from league.matchmaking.view import NEWEST, ModelRef
from warren.errors import CheckpointError, ConfigurationError
from workers.config import teachers


def setting_of(player: str) -> str:
    """Return the setting's full name, for messages."""
    return f"players.{player}.initial"


def model_of(initial: str | None, players: Container[str]) -> ModelRef | None:
    """Return the model of the league that `initial` names, where the league has these `players`; None for a path."""
    if initial is None:
        return None
    return ModelRef(initial, NEWEST) if initial in players else teachers.reference(initial)


def load(path: str, policy: Policy, player: str) -> None:
    """Load the checkpoint at `path` into `policy`, for `player`.

    Raises ConfigurationError where there is none, or it is one of another network.
    """
    setting = setting_of(player)
    try:
        checkpoint = checkpoints.load(teachers.file_of(path, setting))
        checkpoints.load_weights(policy, checkpoint.policy, path)
    except CheckpointError as error:
        raise ConfigurationError(f"{setting}: {error}") from None
