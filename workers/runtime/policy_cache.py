"""A cache of frozen models' policies, each loaded when first played; the least recently used are dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.models.pool import Pool

KEPT = 10  # policies that stay loaded, whatever their size
KEPT_BYTES = 8 << 20  # bytes up to which more stay loaded: 1,000 models take a few % more of a process than 10
OBJECTS = 64 << 10  # bytes of a policy besides its weights: modules, spaces, generators


class FrozenPolicies:
    """A cache of policies by model; a policy that is dropped while it plays stays until its games have ended.

    `frozen` makes the policy of a model from its bytes.
    """

    def __init__(
        self,
        pool: Pool,
        frozen: Callable[[ModelRef, bytes], Policy],
        kept: int = KEPT,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._pool, self._make, self._kept, self._kept_bytes = pool, frozen, kept, kept_bytes
        self._policies: OrderedDict[ModelRef, Policy] = OrderedDict()
        self.bytes = 0  # bytes of the policies that are loaded

    def __len__(self) -> int:
        return len(self._policies)

    def __getitem__(self, model: ModelRef) -> Policy:
        """Return the policy of `model`, loaded if need be.

        Raises PoolError when the pool lacks the model, CheckpointError when it is damaged or of another network.
        """
        if model not in self._policies:
            policy = self._policies[model] = self._make(model, self._pool.get(*model).data)
            self.bytes += weight(policy)
            while len(self._policies) > self._kept and self.bytes > self._kept_bytes:
                self.bytes -= weight(self._policies.popitem(last=False)[1])
        self._policies.move_to_end(model)
        return self._policies[model]


def weight(policy: Policy) -> int:
    """Return the approximate number of bytes that a loaded policy takes."""
    return OBJECTS + sum(int(tensor.numel() * tensor.element_size()) for tensor in policy.state_dict().values())
