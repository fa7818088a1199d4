"""Sides of the strength benchmark: a league, its control, and leagues with parts left out or put in; and the games.

A side is the league of a game's settings with some PARTS. A part whose settings this version lacks is not there, and
neither is a side that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from workers.config.league import LeagueConfig, PlayerConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "league"
TUNED = ("rps", "spinning_top", "kuhn", "leduc")  # games that settings may be chosen on: conf/league/GAME.yaml
BASE = "leduc"  # whose settings all other games have, but for what follows
BIDDING = {"returns_type": "win_loss", "points_order": "descending"}
HELD_OUT: dict[str, dict[str, Any]] = {
    "liars_dice": {"env": "openspiel:liars_dice"},
    "goofspiel_4": {"env": "openspiel:goofspiel", "env_kwargs": {"num_cards": 4, "imp_info": True, **BIDDING}},
    "goofspiel_5": {"env": "openspiel:goofspiel", "env_kwargs": {"num_cards": 5, **BIDDING}},
    "blotto": {"env": "openspiel:blotto", "env_kwargs": {"coins": 13, "fields": 3}},  # 105 strategies
    "phantom_ttt": {"env": "openspiel:phantom_ttt"},
    "dark_hex_3": {"env": "openspiel:dark_hex", "env_kwargs": {"board_size": 3}},
    "connect_four": {"env": "openspiel:connect_four"},
}
GAMES = (*TUNED, *HELD_OUT)
EXPLOITERS = ("main_exploiter", "league_exploiter")
EARLY = {"checkpoint_min_steps": 30_000, "checkpoint_max_steps": 60_000}
EARLY_PERIOD = 10_000  # decisions: a period has to end before a threshold is looked at

Change = Callable[[LeagueConfig], LeagueConfig]


def without_exploiters(config: LeagueConfig) -> LeagueConfig:
    """Leave the main agent alone, with PFSP over its own past."""
    return replace(config, players={"main": config.players["main"]})


def without_pfsp(config: LeagueConfig) -> LeagueConfig:
    """Give the main agent's PFSP games to self-play."""
    return _main(config, pfsp_share=0.0)


def without_verification(config: LeagueConfig) -> LeagueConfig:
    """Give the main agent's verification games to self-play."""
    return _main(config, verification_share=0.0)


def early_exploiters(config: LeagueConfig) -> LeagueConfig:
    """Freeze exploiters after 30,000 to 60,000 decisions, about what a best response takes in these games."""
    players = {
        name: replace(player, config={**player.config, **EARLY}) if player.kind in EXPLOITERS else player
        for name, player in config.players.items()
    }
    return replace(config, players=players, period_steps=min(config.period_steps, EARLY_PERIOD))


def psro_exploiter(config: LeagueConfig) -> LeagueConfig:
    """Let the last of the league exploiters play the mixture instead, frozen and reset as often as they are."""
    name = [name for name, player in config.players.items() if player.kind == "league_exploiter"][-1]
    known = config.players[name]
    changed = replace(known, kind="psro", config={"snapshot_every": EARLY["checkpoint_max_steps"]})
    return replace(config, players={**config.players, name: changed})


def self_play_alone(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent play itself without ever being frozen."""
    main = PlayerConfig("self_play", {"snapshot_every": None}, config.players["main"].hyperparameters)
    return replace(config, players={"main": main}, evaluation_share=0.0)


PARTS: dict[str, Change] = {
    "without exploiters": without_exploiters,
    "without PFSP": without_pfsp,
    "without verification": without_verification,
    "early exploiters": early_exploiters,
    "PSRO exploiter": psro_exploiter,
    "self-play alone": self_play_alone,
}
LEAGUE, CONTROL, SELF_PLAY = "league", "control", "selfplay"
# Each side's parts, in the order in which they are put in.
SIDES: dict[str, tuple[str, ...]] = {
    CONTROL: ("without exploiters", "without PFSP", "without verification"),
    LEAGUE: (),
    "no_exploiters": ("without exploiters",),
    "no_pfsp": ("without exploiters", "without PFSP"),
    "early": ("early exploiters",),
    "budgeted": ("early exploiters", "schedules by progress"),
    "warm": ("early exploiters", "schedules by progress", "warm start"),
    "psro_exploiter": ("early exploiters", "schedules by progress", "warm start", "PSRO exploiter"),
    "mmd": ("early exploiters", "schedules by progress", "warm start", "PSRO exploiter", "MMD"),
    "early_psro": ("early exploiters", "PSRO exploiter"),
    SELF_PLAY: ("self-play alone",),
}


def lacking(side: str) -> list[str]:
    """Return the parts of `side` that this version does not have."""
    return [part for part in SIDES[side] if part not in PARTS]


def there() -> list[str]:
    """Return the sides all of whose parts this version has."""
    return [side for side in SIDES if not lacking(side)]


def settings(game: str, seed: int, side: str, changes: list[str] | None = None) -> LeagueConfig:
    """Return the league of `game` with `changes` (Hydra's NAME=VALUE) and the parts of `side`."""
    given = OmegaConf.merge(
        OmegaConf.load(CONF / f"{BASE if game in HELD_OUT else game}.yaml"),
        {"reward_scale": 1.0, **HELD_OUT[game]} if game in HELD_OUT else {},
        OmegaConf.from_dotlist(changes or []),
    )
    found: Any = OmegaConf.to_container(given)
    config = LeagueConfig.from_dict({**found, "seed": seed})
    for part in SIDES[side]:
        config = PARTS[part](config)
    return config


def _main(config: LeagueConfig, **shares: float) -> LeagueConfig:
    main = config.players["main"]
    return replace(config, players={**config.players, "main": replace(main, config={**main.config, **shares})})
