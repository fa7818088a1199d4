"""A version of a trained policy as a league's player that does not learn: a fixed opponent for all others."""

from __future__ import annotations

from agents.checkpoints import weights_from_bytes, weights_to_bytes
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.models.pool import Pool
from league.redis.store import Store
from warren.errors import ConfigurationError, PlayerError

KIND = "self_play"  # never used: a frozen player requests no match


def clone(store: Store, pool: Pool, policy: Policy, version: int, name: str, by: str = "clone") -> ModelRef:
    """Freeze the weights of `policy` as `name`@`version` in the pool, and add the player `name` that is that model.

    Repeating the same call changes nothing. Raises ConfigurationError for weights of another network than the league's,
    and PlayerError for a name that is taken.
    """
    _check(pool, policy, name)
    model, player = ModelRef(name, version), store.view().roster
    if name in player and player[name].model != model:
        raise PlayerError(f"player {name!r} is in the league already, and is another model; choose another name")
    data = weights_to_bytes(policy, {"player": name, "version": version, "step": 0})
    if not pool.put(name, version, 0, data) and pool.get(name, version).data != data:
        raise PlayerError(f"the pool holds another {model}; choose another name for the clone")
    pool.freeze(name, version)
    store.add_player(name, KIND, frozen=True, model=model, by=by)
    return model


def _check(pool: Pool, policy: Policy, name: str) -> None:
    """Raise ConfigurationError if the league's own models have other tensors."""
    ours = {key: tuple(tensor.shape) for key, tensor in policy.state_dict().items()}
    other = next((info for info in pool.models() if info.player != name), None)
    if other is None:
        return
    theirs, _ = weights_from_bytes(pool.get(*other.ref).data)
    shapes = {key: tuple(tensor.shape) for key, tensor in theirs.items()}
    differing = sorted(key for key in ours.keys() | shapes.keys() if ours.get(key) != shapes.get(key))
    if differing:
        raise ConfigurationError(
            f"clone {name}: its network is not the league's: {differing[0]} is {ours.get(differing[0], 'absent')} here "
            f"and {shapes.get(differing[0], 'absent')} in {other.ref}; a clone plays with the network of its league"
        )
