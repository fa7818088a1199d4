"""The fields that a run's algorithm, Warren's or the user's, asks samplers to collect."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from agents import build_algorithm
from agents.policies import Policy
from agents.trajectories import requested


def fields_asked(algorithm: Mapping[str, Any], policy: Policy) -> list[str]:
    """Return those of ON_REQUEST and CUT_OBSERVATION that an algorithm of these settings needs to train `policy`.

    `policy` is not changed. Raises what `build_algorithm` raises.
    """
    return requested(build_algorithm(algorithm.get("name", "ppo"), algorithm, deepcopy(policy), 0).needs.fields)
