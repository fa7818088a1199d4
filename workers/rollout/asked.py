"""Asking a run's algorithm, whoever wrote it, what samplers are to collect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import build_algorithm, build_policy
from agents.policies import Policy
from agents.trajectories import requested


def fields_asked(algorithm: Mapping[str, Any], network: Mapping[str, Any], policy: Policy) -> list[str]:
    """Return the fields of ON_REQUEST that the algorithm of these settings needs, trained on a policy like `policy`.

    `policy`, of the network of these settings, stays as it is. Raises what `build_algorithm` raises.
    """
    like = build_policy(network, policy.learning_space, policy.action_space, 0, policy.channels)
    return requested(build_algorithm(algorithm.get("name", "ppo"), algorithm, like, 0).needs.fields)
