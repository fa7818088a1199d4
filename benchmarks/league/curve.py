"""A league's exploitability as it learns: `python -m benchmarks.league.curve kuhn --seconds 60 --out kuhn.jsonl`.

One league in this process with the settings of conf/league/GAME.yaml. With --self-play one player with the main agent's
settings that plays itself, without snapshots. With --control that player with the main agent's snapshots, and the same
evaluator's mixture of them: what a league's result would be without the league. Exploitability is computed exactly, on
the whole game (envs.exploitability), and the clock stands still meanwhile. Every line is a JSON object {game, side,
seed, seconds, nash_mixture, main_agent, ...}.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from omegaconf import OmegaConf

from envs import exploitability
from workers.config.league import LeagueConfig, PlayerConfig
from workers.evaluation.scores import table
from workers.leagues.local import LocalLeague

CONF = Path(__file__).resolve().parents[2] / "conf" / "league"
GAMES = ("rps", "spinning_top", "kuhn", "leduc")
# The processor's does not depend on what else a machine does; to one thread on a core of its own both are the same.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
LEAGUE, SELF_PLAY, CONTROL = "league", "self_play", "control"  # the sides


def settings(game: str, seed: int, side: str, changes: list[str] | None = None) -> LeagueConfig:
    """Return conf/league/GAME.yaml with `changes` (Hydra's NAME=VALUE), less what `side` lacks.

    Self-play: its main agent alone, playing itself. The control: that, frozen when the main agent would be, and
    evaluated as the league is.
    """
    found = OmegaConf.merge(OmegaConf.load(CONF / f"{game}.yaml"), OmegaConf.from_dotlist(changes or []))
    given: Any = OmegaConf.to_container(found)
    config = LeagueConfig.from_dict({**given, "seed": seed})
    if side == LEAGUE:
        return config
    main = config.players["main"]
    if side == CONTROL:  # a main agent that meets no other: so its snapshots follow the rule of a main agent
        alone = {**main.config, "pfsp_share": 0.0, "verification_share": 0.0}
        return replace(config, players={"main": replace(main, config=alone)})
    main = PlayerConfig("self_play", {"snapshot_every": None}, main.hyperparameters)
    return replace(config, players={"main": main}, evaluation_share=0.0)


class Meter:
    """Exploitability of a league's mixture and of its main agent, each frozen model looked at once."""

    def __init__(self, league: LocalLeague) -> None:
        self._league = league
        self._form = exploitability.load(league.config.env, **league.config.env_kwargs)
        self._tables: dict[int, np.ndarray] = {}  # of frozen players, by slot

    def read(self) -> dict[str, float]:
        """In the game's points a game, and how large the league has become."""
        league = self._league
        slots, shares = league.mixture()
        tables = []
        for slot in slots.tolist():
            if slot not in self._tables:
                self._tables[slot] = self._table(league.policy_of(slot))
            tables.append(self._tables[slot])
        mixture = exploitability.mixture(self._form, tables, shares)
        return {
            "nash_mixture": round(exploitability.of(self._form, mixture), 6),
            "main_agent": round(exploitability.of(self._form, self._table(league.trainees["main"].policy)), 6),
            "frozen": len(slots),
            "in_mixture": int((shares.max(axis=0) > 0.01).sum()),
            "steps": sum(trainee.steps for trainee in league.trainees.values()),
            "evaluation_games": int(league.returns.total_games),
        }

    def _table(self, policy: Any) -> np.ndarray:
        return table(self._form, policy)


def follow(
    league: LocalLeague,
    seconds: float,
    every: float,
    out: TextIO,
    clock: Callable[[], float] = time.perf_counter,
    **labels: Any,
) -> None:
    """Let `league` learn for `seconds` by `clock`, with a line about every `every` seconds, none after the end."""
    meter, spent, due = Meter(league), 0.0, 0.0
    while spent < seconds:
        if spent >= due:
            print(json.dumps({**labels, "seconds": round(spent, 2), **meter.read()}), file=out, flush=True)
            due = spent + every
        started = clock()
        league.round()
        spent += clock() - started


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("changes", nargs="*", help="settings other than the file's: algorithm.epochs=2")
    sides = parser.add_mutually_exclusive_group()
    for option, side in (("--self-play", SELF_PLAY), ("--control", CONTROL)):
        sides.add_argument(option, action="store_const", const=side, default=LEAGUE, dest="side")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of learning")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: of this process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between lines, at least")
    parser.add_argument("--out", type=Path, help="JSON lines are added there; else printed")
    given = parser.parse_args()
    torch.set_num_threads(1)  # networks this small are faster so
    league = LocalLeague(settings(given.game, given.seed, given.side, given.changes))
    labels = {"game": given.game, "side": given.side, "seed": given.seed}
    with given.out.open("a") if given.out else contextlib.nullcontext(sys.stdout) as out:
        follow(league, given.seconds, given.every, out, CLOCKS[given.clock], **labels)


if __name__ == "__main__":
    main()
