"""The table of algorithms by name, and a function that builds one of them, or a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents.algorithms.contract import QUEUE, Algorithm, Needs
from agents.policies import Policy
from warren.errors import ConfigurationError
from warren.registry import Registry
from warren.user_code import blame, call, find

METHODS = ("update", "behaviour", "adjust", "begin_at", "state", "load_state")

# (settings without the name, policy, seed) -> algorithm
ALGORITHMS: Registry[Callable[[Mapping[str, Any], Policy, int], Algorithm]] = Registry("algorithm")


def build_algorithm(name: str, config: Mapping[str, Any], policy: Policy, seed: int, replay: bool = True) -> Algorithm:
    """Build the algorithm called `name`; a `name` in `config` is ignored, so that a whole YAML file may be given.

    A name with a colon is a user's function, "path/to/file.py:build" or "my.module:build", called as the table's are.
    `replay`: whether the caller has a replay; without one, algorithms with another source than the queue are refused.
    Raises UnknownName for the name and ConfigurationError for the settings, and for whatever a user's function raises.
    """
    settings = {key: value for key, value in config.items() if key != "name"}
    algorithm = _users(name, settings, policy, seed) if ":" in name else ALGORITHMS[name](settings, policy, seed)
    if not replay and (source := algorithm.needs.source) != QUEUE:
        raise ConfigurationError(
            f"algorithm: {name!r} learns from another source ({source}) than what is played now, which is all there is "
            "here; choose one that learns from that, such as ppo"
        )
    return algorithm


def _users(name: str, settings: Mapping[str, Any], policy: Policy, seed: int) -> Algorithm:
    with blame(f"algorithm {name!r}"):
        algorithm: Algorithm = call(f"algorithm {name!r}", find("algorithm", name), settings, policy, seed)
    lacking = [method for method in METHODS if not callable(getattr(algorithm, method, None))]
    if not isinstance(getattr(algorithm, "needs", None), Needs):
        lacking.append("needs")
    if lacking:
        raise ConfigurationError(
            f"algorithm {name!r} made a {type(algorithm).__name__} without {', '.join(lacking)}; derive from "
            "agents.algorithms.gradient.GradientAlgorithm, or see agents.algorithms.Algorithm"
        )
    return algorithm
