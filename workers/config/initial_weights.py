"""The weights with which a league's player begins and to which a reset returns: its setting `initial`.

    runs/cartpole/TRIAL        a run folder or a checkpoint, written like a teacher's
    main@1200                  a frozen model of the league
    main                       a player of the league: its newest weights, whenever this player begins or is reset

The weights must fit the player's network. Null: fresh weights.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from agents import checkpoints
from agents.policies import Policy
from league.matchmaking import names_of
from league.matchmaking.pbt import PbtElo, PbtPsro
from league.matchmaking.view import NEWEST, ModelRef
from warren.errors import CheckpointError, ConfigurationError
from workers.config import teachers
from workers.config.league import LeagueConfig

POPULATIONS = names_of(PbtElo) | names_of(PbtPsro)  # kinds whose players copy each other's weights


def setting_of(player: str) -> str:
    """Return the setting's full name, for messages."""
    return f"players.{player}.initial"


def model_of(initial: str | None, players: Container[str]) -> ModelRef | None:
    """Return the model that `initial` names in a league with these `players`; None for a path."""
    if initial is None:
        return None
    return ModelRef(initial, NEWEST) if initial in players else teachers.reference(initial)


def load(path: str, policy: Policy, player: str) -> None:
    """Load the checkpoint at `path` into `policy`, for `player`.

    Raises ConfigurationError if there is no checkpoint, or its network is another.
    """
    setting = setting_of(player)
    try:
        checkpoint = checkpoints.load(teachers.file_of(path, setting))
        checkpoints.load_weights(policy, checkpoint.policy, path)
    except CheckpointError as error:
        raise ConfigurationError(f"{setting}: {error}") from None


def misfits(league: LeagueConfig, policies: Mapping[str, Policy]) -> Iterator[str]:
    """Yield a sentence for each player that is to take over the weights of a player with another network.

    `policies`: player -> a policy with its network.
    """
    for name, policy in policies.items():
        player = league.players[name]
        model = model_of(player.initial, league.players)
        source = policies.get("" if model is None else model.player)
        if model is not None and source is not None and not _fits(policy, source):
            yield (
                f"{setting_of(name)}={player.initial}: {name} has network {league.network_of(name)}, and "
                f"{model.player} {league.network_of(model.player)}, whose weights do not fit; give both one network, "
                "or initial: null"
            )
    populations: dict[str, str] = {}
    for name, policy in policies.items():
        if (kind := league.players[name].kind) in POPULATIONS:
            first = populations.setdefault(kind, name)
            if not _fits(policy, policies[first]):
                yield (
                    f"players.{name}.network={league.network_of(name)}: players of kind {kind} copy each other's "
                    f"weights, and {first} has network {league.network_of(first)}; give all of them one"
                )


def _fits(policy: Policy, other: Policy) -> bool:
    try:
        checkpoints.check_weights(policy, other.state_dict())
    except CheckpointError:
        return False
    return True
