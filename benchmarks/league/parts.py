"""Parts that the strength benchmark leaves out of a league or puts in; each changes the settings of a league."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from workers.config.league import LeagueConfig, PlayerConfig

EXPLOITERS, UNREGULARIZED = ("main_exploiter", "league_exploiter"), "unregularized"
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
# An answer's budget is a period of the league of PSRO players; its opponents' weights move ten times in it. Entropy
# falls as it does there; steps are decisions since the answer began.
ANYTIME: dict[str, Any] = {"budget": 150_000, "rate": 1.0, "look_games": 1024}
ANSWERING: dict[str, Any] = {
    "entropy_coefficient": {"name": "linear", "start": 0.1, "end": 0.003, "steps": 120_000},
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


def sooner_exploiters(config: LeagueConfig) -> LeagueConfig:
    """Give exploiters ten updates to 24 of the main agent: they enter in the first half of runs of 45 s."""
    players = {
        name: replace(one, updates=10) if one.kind in EXPLOITERS else one for name, one in config.players.items()
    }
    return replace(config, players=players)


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


def anytime(config: LeagueConfig) -> LeagueConfig:
    """Let PSRO players answer a mixture that learns against them (McAleer et al. 2022)."""
    answer = PlayerConfig("anytime_psro", ANYTIME, algorithm=ANSWERING)
    return replace(config, players=dict.fromkeys(config.players, answer), period_steps=ANYTIME["budget"] // 10)


def self_play_psro(config: LeagueConfig) -> LeagueConfig:
    """Let one player answer such a mixture and a strategy that learns against it; its average joins (McAleer 2024)."""
    answer = PlayerConfig("anytime_psro", {**ANYTIME, "strategy": "strategy"}, algorithm=ANSWERING)
    against = {"opponent": "answer", "budget": ANYTIME["budget"]}
    strategy = PlayerConfig("best_response", against, algorithm=ANSWERING, averages=(0.05,), averages_alone=True)
    players = {"answer": answer, "strategy": strategy}
    return replace(config, players=players, period_steps=ANYTIME["budget"] // 10)


PARTS: dict[str, Change] = {
    "without exploiters": without_exploiters,
    "without PFSP": without_pfsp,
    "without verification": without_verification,
    "early exploiters": early_exploiters,
    "sooner exploiters": sooner_exploiters,
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
    "anytime PSRO": anytime,
    "self-play PSRO": self_play_psro,
}


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
