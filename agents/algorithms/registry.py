"""What an algorithm is, and the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from agents.policies import Policy
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError
from warren.registry import Registry
from warren.user_code import blame, find


class Algorithm(Protocol):
    """Changes its policy's weights in place. The loop that uses it:

    while True:
        metrics = algorithm.update(trajectories)
        publish(policy.state_dict())
    """

    policy: Policy

    def update(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """One update from these trajectories; metrics by name."""
        ...

    def adjust(self, changes: Mapping[str, Any]) -> None:
        """Settings from now on, the others staying. Raises ConfigurationError for unknown names and wrong values."""
        ...

    def begin_at(self, steps: int) -> None:
        """Schedules (learning rate, entropy) stand where they do after `steps` environment steps."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, scalars) that, with the policy's weights, continue training exactly; JSON can hold the scalars."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        """Continues from what `state` returned."""
        ...


METHODS = ("update", "adjust", "begin_at", "state", "load_state")

# (settings without the name, policy, seed) -> algorithm
ALGORITHMS: Registry[Callable[[Mapping[str, Any], Policy, int], Algorithm]] = Registry("algorithm")


def build_algorithm(name: str, config: Mapping[str, Any], policy: Policy, seed: int) -> Algorithm:
    """The algorithm called `name`, with its settings. A `name` among those is ignored: a whole YAML file may be given.

    A name with a colon is the user's: "path/to/file.py:build" or "my.module:build", called as the table's own are.
    Raises UnknownName for the name and ConfigurationError for the settings, and for whatever a user's function raises.
    """
    settings = {key: value for key, value in config.items() if key != "name"}
    if ":" not in name:
        return ALGORITHMS[name](settings, policy, seed)
    with blame(f"algorithm {name!r}"):
        algorithm: Algorithm = find("algorithm", name)(settings, policy, seed)
    if lacking := [method for method in METHODS if not callable(getattr(algorithm, method, None))]:
        raise ConfigurationError(
            f"algorithm {name!r} made a {type(algorithm).__name__} without {', '.join(lacking)}; derive from "
            "agents.algorithms.gradient.GradientAlgorithm, or see agents.algorithms.Algorithm"
        )
    return algorithm
