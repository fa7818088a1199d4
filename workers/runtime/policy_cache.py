"""Policies of frozen models, each loaded from the pool once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agents.checkpoints import load_weights, weights_from_bytes
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.models.pool import Pool

KEPT = 256  # least used ones are dropped beyond; their weights stay in the pool's own cache for longer


class FrozenPolicies:
    """`build` makes a policy of the league's network; its weights are overwritten."""

    def __init__(self, pool: Pool, build: Callable[[int], Policy], kept: int = KEPT) -> None:
        self._pool, self._build, self._kept = pool, build, kept
        self._policies: OrderedDict[ModelRef, Policy] = OrderedDict()

    def __getitem__(self, model: ModelRef) -> Policy:
        """Raises PoolError when the pool lacks the model, CheckpointError when it is damaged or of another network."""
        if model not in self._policies:
            policy = self._build(0).requires_grad_(False)
            load_weights(policy, weights_from_bytes(self._pool.get(*model).data)[0], str(model))
            self._policies[model] = policy
            if len(self._policies) > self._kept:
                self._policies.popitem(last=False)
        self._policies.move_to_end(model)
        return self._policies[model]
