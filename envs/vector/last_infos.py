"""Numbers in the last info of an episode, such as `is_success`, that count as its figures: `env.info_metrics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class WrongInfo(ValueError):
    """Raised for an episode's last info without a number that it has to give; does not name the environment."""


def number_in(info: Mapping[str, Any], name: str) -> float:
    """Return a number in the last info of an episode. Raises WrongInfo if it is missing, or not finite."""
    if name not in info:
        found = ", ".join(sorted(key for key in map(str, info) if key[:1] != "_")) or "nothing"
        raise WrongInfo(
            f"ended an episode whose info has {found}; give it {name!r} too, or leave {name!r} out of env.info_metrics"
        )
    try:
        number = float(info[name])
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise WrongInfo(f"ended an episode with {info[name]!r} as {name!r} in its info; give a finite number")
    return number


def numbers_in(infos: Mapping[str, Any], name: str, ended: np.ndarray) -> list[float]:
    """Return the numbers of the slots `ended`, from last infos that are merged by key, [N] each. Raises WrongInfo."""
    if name not in infos:
        return [number_in(infos, name)]
    merged = np.asarray(infos[name])
    if merged.ndim != 1 or len(merged) <= ended.max():
        raise WrongInfo(
            f'ended an episode with {name!r} of shape {list(merged.shape)} in info["final_info"]; give one number '
            "for each environment"
        )
    return [number_in({name: merged[slot]}, name) for slot in ended]
