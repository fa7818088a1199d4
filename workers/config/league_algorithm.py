"""Which algorithm a league's players learn by: its own file's, or the one that a command line chooses for any run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from workers.config.schema import Config

DEFAULT = "ppo"  # of conf/warren.yaml, which no league has asked for


def with_algorithm(config: Config, choice: str | None, overrides: Sequence[str]) -> Config:
    """`config` with `algorithm=NAME` and `algorithm.SETTING=VALUE` of this command line taken over by its league.

    What the league's file says of settings that the chosen algorithm has as well (discount, entropy, learning rate) is
    about the game, and stays; the rest is as conf/algorithm/NAME.yaml has it. `choice`: the chosen file's name, None
    where there is none to choose.
    """
    if config.league is None:
        return config
    given = [override.lstrip("+").partition("=")[0] for override in overrides]
    settings = dict(config.league.get("algorithm") or {})
    if choice is not None and (choice != DEFAULT or "algorithm" in given):
        chosen = dict(config.algorithm)
        known = set(chosen)
        if ":" not in str(chosen.get("name", "")):
            from agents.algorithms.gradient import GradientConfig  # and with it torch

            known |= {field.name for field in fields(GradientConfig)}
        kept = {name: value for name, value in settings.items() if name in known and name != "name"}
        settings = {**chosen, **kept}
    names = [name.removeprefix("algorithm.") for name in given if name.startswith("algorithm.")]
    settings |= {name: config.algorithm[name] for name in names if name in config.algorithm}
    return replace(config, league={**config.league, "algorithm": settings})
