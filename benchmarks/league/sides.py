"""Sides of the strength benchmark: a league, its control, and leagues with parts left out or put in; and the games.

A side is the league of a game's settings with some PARTS (parts.py), or of a settings file of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from benchmarks.league.parts import PARTS, UNREGULARIZED
from league.empirical_game.mixture import PAIRS
from workers.config.league import LeagueConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "league"
TUNED = ("rps", "spinning_top", "kuhn", "leduc")  # games on which settings may be chosen: conf/league/GAME.yaml
BASE = "leduc"  # all other games have its settings, but for those below
OF_HELD_OUT: dict[str, Any] = {"reward_scale": 1.0}  # instead of BASE's: returns lie within 1, not 13
# The shorter a run, the less the main agent's snapshots contribute to the mixture. Chosen on Leduc's first 45 s, except
# the epochs, set after a look at held-out games, and the exploiters' updates, which make exploiters enter in time.
EARNED: dict[str, Any] = {
    "players": {
        "main": {"updates": 24},
        UNREGULARIZED: {"updates": 24, "algorithm": {"epochs": 3}},
        **{name: {"updates": 5} for name in ("main_exploiter", "league_exploiter_0", "league_exploiter_1")},
    },
    "earned_share": 0.8,
}
# For games whose best responses would take too long. No player trains against exploiters: a mixture of them is beaten.
BY_PAIRS = {
    "evaluation": "pairs",
    "mixture_against": "players",
    "mixture_exploiters": False,
    "mixture_least_temperature": 0.0015,
    "players": {"main": {"updates": 48}},  # for exploiters that enter early in short runs
}
BIDDING = {"returns_type": "win_loss", "points_order": "descending"}
HELD_OUT: dict[str, dict[str, Any]] = {
    "liars_dice": {"env": "openspiel:liars_dice"},
    "goofspiel_4": {"env": "openspiel:goofspiel", "env_kwargs": {"num_cards": 4, "imp_info": True, **BIDDING}},
    "goofspiel_5": {"env": "openspiel:goofspiel", "env_kwargs": {"num_cards": 5, "imp_info": True, **BIDDING}},
    "blotto": {"env": "openspiel:blotto", "env_kwargs": {"coins": 13, "fields": 3}},  # 105 strategies
    "phantom_ttt": {"env": "openspiel:phantom_ttt", **BY_PAIRS},
    "dark_hex_3": {"env": "openspiel:dark_hex", "env_kwargs": {"board_size": 3}, **BY_PAIRS},
    "connect_four": {"env": "openspiel:connect_four", **BY_PAIRS},
}
GAMES = (*TUNED, *HELD_OUT)
LEAGUE, CONTROL, SELF_PLAY, MINE, PSRO = "league", "control", "selfplay", "mine", "psro"
# Sides with settings of their own, for every game.
OF_FILES = {MINE: "mine", **dict.fromkeys((PSRO, "anytime_psro", "self_play_psro"), f"{BASE}_psro")}
ALONE = ("without exploiters", "without unregularized")
# Each side's parts, in the order in which they are applied.
SIDES: dict[str, tuple[str, ...]] = {
    CONTROL: (*ALONE, "without PFSP", "without verification"),
    LEAGUE: (),
    "unregularized": ("unregularized alone", "without PFSP", "without verification"),
    "no_unregularized": ("without unregularized",),
    "no_exploiters": ("without exploiters",),
    "no_earned": ("without earned learning",),
    "no_pfsp": (*ALONE, "without PFSP"),
    "no_verification": ("without verification",),
    "early": ("early exploiters",),
    "sooner": ("sooner exploiters",),
    "warm": ("early exploiters", "warm start"),
    "psro_exploiter": ("early exploiters", "warm start", "PSRO exploiter"),
    "mmd": ("early exploiters", "warm start", "PSRO exploiter", "MMD"),
    "early_psro": ("early exploiters", "PSRO exploiter"),
    "early_mmd": ("early exploiters", "PSRO exploiter", "MMD"),
    "control_mmd": (*ALONE, "without PFSP", "without verification", "MMD"),
    "control_nashpg": (*ALONE, "without PFSP", "without verification", "NashPG"),
    "control_rudolph": (*ALONE, "without PFSP", "without verification", "plain self-play"),
    "averages": ("averages",),
    "returns": ("freeze by returns",),
    "returns_earned": ("freeze by returns", "earned learning"),
    "control_averages": (*ALONE, "without PFSP", "without verification", "averages"),
    SELF_PLAY: ("self-play alone",),
    MINE: (),
    PSRO: (),
    "anytime_psro": ("anytime PSRO",),
    "self_play_psro": ("self-play PSRO",),
}


def twin(game: str, side: str) -> str | None:
    """Return the first of the SIDES before `side` that is the same league, since `game` has those parts already."""
    before = list(SIDES)[: list(SIDES).index(side)]
    return next((one for one in before if _as_it_is(game, one) == _as_it_is(game, side)), None)


@cache
def _as_it_is(game: str, side: str) -> LeagueConfig:
    return settings(game, 1, side)


def settings(game: str, seed: int, side: str, changes: list[str] | None = None) -> LeagueConfig:
    """Return the league of `game` with `changes` (Hydra's NAME=VALUE) and the parts of `side`."""
    config = _of_file(game, OF_FILES[side], changes) if side in OF_FILES else _of_game(game, changes)
    config = replace(config, seed=seed)
    for part in SIDES[side]:
        config = PARTS[part](config)
    return config


def _of_game(game: str, changes: list[str] | None = None) -> LeagueConfig:
    own = HELD_OUT.get(game, {})
    by_pairs = own.get("evaluation") == PAIRS
    given = OmegaConf.merge(
        OmegaConf.load(CONF / f"{BASE if own else game}.yaml"),
        {**OF_HELD_OUT, **({} if by_pairs else EARNED), **own} if own else {},
        OmegaConf.from_dotlist(changes or []),
    )
    found: Any = OmegaConf.to_container(given)
    if by_pairs:  # best responses alone can show the faults of its snapshots
        del found["players"][UNREGULARIZED]
    return LeagueConfig.from_dict(found)


def _of_file(game: str, file: str, changes: list[str] | None) -> LeagueConfig:
    config = _of_game(game)
    games = {name: getattr(config, name) for name in ("env", "env_kwargs", "reward_scale")}
    given = OmegaConf.merge(OmegaConf.load(CONF / f"{file}.yaml"), games, OmegaConf.from_dotlist(changes or []))
    found: Any = OmegaConf.to_container(given)
    return LeagueConfig.from_dict(found)
