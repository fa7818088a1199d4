"""Policies of frozen models, each loaded from the pool when it is first played; the least used ones are unloaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agents.checkpoints import load_weights, weights_from_bytes
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.models.pool import Pool

KEPT = 10  # policies that stay loaded whatever they weigh,
KEPT_BYTES = 8 << 20  # and more of them up to so many bytes: 1,000 models take a few % more of a process than 10
OBJECTS = 64 << 10  # bytes of a policy beside its weights: modules, spaces, generators


class FrozenPolicies:
    """`build` makes a policy of the league's network; its weights are overwritten.

    One that is unloaded while it plays stays until its games have ended.
    """

    def __init__(
        self, pool: Pool, build: Callable[[int], Policy], kept: int = KEPT, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._pool, self._build, self._kept, self._kept_bytes = pool, build, kept, kept_bytes
        self._policies: OrderedDict[ModelRef, Policy] = OrderedDict()
        self.bytes = 0  # of those that are loaded

    def __len__(self) -> int:
        """How many are loaded."""
        return len(self._policies)

    def __getitem__(self, model: ModelRef) -> Policy:
        """Raises PoolError when the pool lacks the model, CheckpointError when it is damaged or of another network."""
        if model not in self._policies:
            policy = self._build(0).requires_grad_(False)
            load_weights(policy, weights_from_bytes(self._pool.get(*model).data)[0], str(model))
            self._policies[model] = policy
            self.bytes += weight(policy)
            while len(self._policies) > self._kept and self.bytes > self._kept_bytes:
                self.bytes -= weight(self._policies.popitem(last=False)[1])
        self._policies.move_to_end(model)
        return self._policies[model]


def weight(policy: Policy) -> int:
    """Bytes that a loaded policy takes, about."""
    return OBJECTS + sum(int(tensor.numel() * tensor.element_size()) for tensor in policy.state_dict().values())
