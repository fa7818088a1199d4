"""Asking a run's algorithm, whoever wrote it, what samplers are to collect."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from agents import build_algorithm
from agents.policies import Policy
from agents.trajectories import requested


def fields_asked(algorithm: Mapping[str, Any], policy: Policy) -> list[str]:
    """Return the fields of ON_REQUEST that the algorithm of these settings needs, trained on a policy like `policy`.

    `policy` stays as it is. Raises what `build_algorithm` raises.
    """
    return requested(build_algorithm(algorithm.get("name", "ppo"), algorithm, deepcopy(policy), 0).needs.fields)
