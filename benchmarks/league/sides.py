"""Sides of the strength benchmark: a league, its control, and leagues with parts left out or put in; and the games.

A side is the league of a game's settings with some PARTS. A part whose settings this version lacks does not exist, and
neither does a side that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from league.empirical_game.mixture import PAIRS
from workers.config.league import LeagueConfig, PlayerConfig

CONF = Path(__file__).resolve().parents[2] / "conf" / "league"
TUNED = ("rps", "spinning_top", "kuhn", "leduc")  # games on which settings may be chosen: conf/league/GAME.yaml
BASE = "leduc"  # all other games have its settings, but for those below
EXPLOITERS, UNREGULARIZED = ("main_exploiter", "league_exploiter"), "unregularized"
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
EARLY = {"checkpoint_min_steps": 30_000, "checkpoint_max_steps": 60_000}
EARLY_PERIOD = 10_000  # decisions: thresholds are checked only at a period's end


def _over_run(name: str, start: float, steps: float, **settings: float) -> dict[str, Any]:
    """Return a schedule by the run's progress; `steps` is a share of the run."""
    return {"name": name, "start": start, "steps": min(1.0, steps), "over": "progress", **settings}


# Sokota et al. 2023 let the temperature fall as the root of time, from 0.05 at 10 million steps upwards. This was not
# chosen on results of this benchmark.
MMD: dict[str, Any] = {
    "entropy_coefficient": _over_run("inverse_square_root", 0.05, 0.01),
    "proximal_coefficient": 0.05,
}
# Settings as published, for rewards within 1; but NashPG renews its magnet every 1,000 updates, a minute of Leduc.
NASHPG: dict[str, Any] = {"entropy_coefficient": 0.1, "magnet_coefficient": 0.2, "magnet_every": 50}
RUDOLPH: dict[str, Any] = {"entropy_coefficient": 0.05, "clip_range": 0.05}
# For exploiters that begin with the main agent's weights; steps are decisions since a reset.
WARM: dict[str, Any] = {
    "entropy_coefficient": {"name": "linear", "start": 0.05, "end": 0.005, "steps": 40_000},
    "magnet_coefficient": {"name": "linear", "start": 0.2, "end": 0.0, "steps": 40_000},
}
Change = Callable[[LeagueConfig], LeagueConfig]


def without_exploiters(config: LeagueConfig) -> LeagueConfig:
    """Leave out the players that learn to beat others."""
    others = {name: player for name, player in config.players.items() if player.kind not in EXPLOITERS}
    return replace(config, players=others)


def without_pfsp(config: LeagueConfig) -> LeagueConfig:
    """Give the main agent's PFSP games to self-play."""
    return _main(config, pfsp_share=0.0)


def without_verification(config: LeagueConfig) -> LeagueConfig:
    """Give the main agent's verification games to self-play."""
    return _main(config, verification_share=0.0)


def early_exploiters(config: LeagueConfig) -> LeagueConfig:
    """Freeze exploiters after 30,000 to 60,000 decisions, about what a best response takes in these games."""
    return _exploiters(config, EARLY)


def freeze_by_returns(config: LeagueConfig) -> LeagueConfig:
    """Freeze exploiters after 30,000 to 240,000 decisions, once their return has stopped rising."""
    return _exploiters(config, {**EARLY, "checkpoint_max_steps": 240_000, "freeze": "returns"})


def earned_learning(config: LeagueConfig) -> LeagueConfig:
    """Give half of all learning to the players that contribute most to the mixture."""
    return replace(config, earned_share=0.5)


def without_earned_learning(config: LeagueConfig) -> LeagueConfig:
    """Give learning to players by their `updates` alone."""
    return replace(config, earned_share=0.0)


def mirror_descent(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent learn by magnetic mirror descent: an entropy bonus and a tie to its last policy."""
    main = config.players["main"]
    kept = {key: rule for key, rule in main.hyperparameters.items() if key not in MMD and key != "entropy_decay_steps"}
    changed = replace(main, hyperparameters=kept, algorithm={**main.algorithm, **MMD, "entropy_decay_steps": None})
    return replace(config, players={**config.players, "main": changed})


def nash_policy_gradient(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent learn by NashPG: a constant entropy bonus and a tie to a copy of itself, renewed at times."""
    return _untied(config, NASHPG)


def plain_self_play(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent learn by PPO with a constant entropy bonus and no magnet, as Rudolph et al. 2026 tune it."""
    return _untied(config, RUDOLPH)


def warm_start(config: LeagueConfig) -> LeagueConfig:
    """Let exploiters begin with the main agent's newest weights, leaving these slowly, with a falling entropy."""
    players = dict(config.players)
    for name, player in players.items():
        if player.kind in EXPLOITERS:
            kept = {key: rule for key, rule in player.hyperparameters.items() if key not in WARM}
            settings = {**player.algorithm, **WARM}
            players[name] = replace(player, initial="main", hyperparameters=kept, algorithm=settings)
    return replace(config, players=players)


def psro_exploiter(config: LeagueConfig) -> LeagueConfig:
    """Let the last league exploiter play the mixture instead, frozen and reset as often as exploiters are."""
    name = [name for name, player in config.players.items() if player.kind == "league_exploiter"][-1]
    known = config.players[name]
    changed = replace(known, kind="psro", config={"snapshot_every": EARLY["checkpoint_max_steps"]})
    return replace(config, players={**config.players, name: changed})


def averages(config: LeagueConfig) -> LeagueConfig:
    """Freeze the average of the main agent's weights, over about 50 updates, beside each of its snapshots."""
    main = replace(config.players["main"], averages=(0.02,))
    return replace(config, players={**config.players, "main": main})


def without_unregularized(config: LeagueConfig) -> LeagueConfig:
    """Leave out the player that cycles, whose snapshots the mixture plays."""
    return replace(config, players={name: one for name, one in config.players.items() if name != UNREGULARIZED})


def unregularized_alone(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent learn like the player that cycles, by the league's PPO, as the only player."""
    main = replace(config.players["main"], algorithm={}, averages=())
    return replace(config, players={"main": main})


def self_play_alone(config: LeagueConfig) -> LeagueConfig:
    """Let the main agent play itself without ever being frozen."""
    main = PlayerConfig("self_play", {"snapshot_every": None}, config.players["main"].hyperparameters)
    return replace(config, players={"main": main}, evaluation_share=0.0, earned_share=0.0)


PARTS: dict[str, Change] = {
    "without exploiters": without_exploiters,
    "without PFSP": without_pfsp,
    "without verification": without_verification,
    "early exploiters": early_exploiters,
    "warm start": warm_start,
    "MMD": mirror_descent,
    "NashPG": nash_policy_gradient,
    "plain self-play": plain_self_play,
    "PSRO exploiter": psro_exploiter,
    "averages": averages,
    "freeze by returns": freeze_by_returns,
    "without unregularized": without_unregularized,
    "unregularized alone": unregularized_alone,
    "earned learning": earned_learning,
    "without earned learning": without_earned_learning,
    "self-play alone": self_play_alone,
}
LEAGUE, CONTROL, SELF_PLAY, MINE, PSRO = "league", "control", "selfplay", "mine", "psro"
OF_FILES = {MINE: "mine", PSRO: f"{BASE}_psro"}  # sides with settings of their own, for every game
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
}


def lacking(side: str) -> list[str]:
    """Return the parts of `side` that this version does not have."""
    return [part for part in SIDES[side] if part not in PARTS]


def there() -> list[str]:
    """Return the sides of which this version has all parts."""
    return [side for side in SIDES if not lacking(side)]


def twin(game: str, side: str) -> str | None:
    """Return the first of the SIDES before `side` that is the same league, since `game` has those parts already."""
    before = list(SIDES)[: list(SIDES).index(side)]
    return next((one for one in before if not lacking(one) and _as_it_is(game, one) == _as_it_is(game, side)), None)


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


def _untied(config: LeagueConfig, settings: dict[str, Any]) -> LeagueConfig:
    main = config.players["main"]
    own = {name: value for name, value in main.algorithm.items() if not name.startswith(("magnet_", "entropy_"))}
    changed = replace(main, algorithm={**own, **settings})
    return replace(config, players={**config.players, "main": changed})


def _main(config: LeagueConfig, **shares: float) -> LeagueConfig:
    main = config.players["main"]
    return replace(config, players={**config.players, "main": replace(main, config={**main.config, **shares})})


def _exploiters(config: LeagueConfig, options: dict[str, Any]) -> LeagueConfig:
    players = {
        name: replace(player, config={**player.config, **options}) if player.kind in EXPLOITERS else player
        for name, player in config.players.items()
    }
    return replace(config, players=players, period_steps=min(config.period_steps, EARLY_PERIOD))
