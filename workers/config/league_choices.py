"""The algorithm and the network of a league's players: from its own file, or chosen on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workers.config.schema import Config

DEFAULT = "ppo"  # the algorithm of conf/warren.yaml, which does not replace that of a league's file


def with_choices(config: Config, choice: str | None, overrides: Sequence[str]) -> Config:
    """Return `config` with the algorithm and network of this command line copied into its league.

    `algorithm=NAME` keeps the settings of the league's file, its players' included, that the chosen algorithm has too
    (discount, entropy, learning rate): they are about the game. `network=NAME` replaces the league's network.
    `algorithm.SETTING=VALUE` and `network.SETTING=VALUE` change one setting. `choice`: the chosen algorithm's file;
    None where there is no choice.
    """
    if config.league is None:
        return config
    given = [override.lstrip("+~").partition("=")[0] for override in overrides]
    league = {**config.league, "algorithm": _algorithm(config, config.league, choice, given)}
    if _replaced(choice, given):
        league["players"] = _players(config, league.get("players") or {}, given)
    if network := _network(config, config.league, given):
        league["network"] = network
    return replace(config, league=league)


def _algorithm(config: Config, league: dict[str, Any], choice: str | None, given: list[str]) -> dict[str, Any]:
    settings = dict(league.get("algorithm") or {})
    if _replaced(choice, given):
        chosen = dict(config.algorithm)
        kept = {name: value for name, value in settings.items() if name in chosen and name != "name"}
        settings = {**chosen, **kept}
    return settings | _given("algorithm", config.algorithm, given)


def _replaced(choice: str | None, given: list[str]) -> bool:
    """Return whether the command line chose the algorithm of a league's players."""
    return choice is not None and (choice != DEFAULT or "algorithm" in given)


def _players(config: Config, players: Mapping[str, Any], given: list[str]) -> dict[str, Any]:
    """Return the players without the settings of their file that the chosen algorithm does not have.

    A setting that an override names is kept, so that it is refused.
    """
    found = {}
    for player, settings in players.items():
        own = (settings or {}).get("algorithm") or {}
        path = f"league.players.{player}.algorithm"
        if own and "name" not in own and path not in given:
            kept = {name: value for name, value in own.items() if name in config.algorithm or f"{path}.{name}" in given}
            settings = {**settings, "algorithm": kept}
        found[player] = settings
    return found


def _network(config: Config, league: dict[str, Any], given: list[str]) -> dict[str, Any]:
    settings = config.network if "network" in given else league.get("network") or {}
    return {**settings, **_given("network", config.network, given)}


def _given(table: str, settings: Mapping[str, Any], given: list[str]) -> dict[str, Any]:
    """Return the settings of `table` that an override names."""
    names = {name.split(".")[1] for name in given if name.startswith(f"{table}.")}
    return {name: settings[name] for name in names if name in settings}
