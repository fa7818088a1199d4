"""The weights with which a league's player begins and to which a reset returns: its setting `initial`.

    runs/cartpole/TRIAL        a run folder or a checkpoint, named as a teacher is
    main@1200                  a frozen model of the league

The network has to be the league's. Null: fresh weights.
"""

from __future__ import annotations

from agents import checkpoints
from agents.policies import Policy
from warren.errors import CheckpointError, ConfigurationError
from workers.config import teachers


def setting_of(player: str) -> str:
    """Return the setting's full name, for messages."""
    return f"players.{player}.initial"


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
