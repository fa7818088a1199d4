"""A league's exploitability as it learns: `python -m benchmarks.league.curve kuhn --seconds 60 --out kuhn.jsonl`.

One league in this process, or another side of the strength benchmark (benchmarks/league/sides.py): --side control plays
itself and is scored by the mixture of its snapshots, --side selfplay has none, --side psro has no main agent.
Exploitability is computed exactly, on the whole game (envs.exploitability), while the clock is stopped; it is null if
the game is too large, and before the last line if computing it takes minutes.
Every line is a JSON object {game, side, seed, seconds, nash_mixture, main_agent, ...}; the last one has least_win_rate,
the main agent's lowest win rate against its own past.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

import envs
from agents.checkpoints import weights_to_bytes
from benchmarks.league.parts import EXPLOITERS
from benchmarks.league.search import against_search
from benchmarks.league.sides import GAMES, LEAGUE, SIDES, settings
from envs import exploitability
from envs.sequence_form import SequenceForm
from league.empirical_game.mixture import BEST_RESPONSES, PLAYERS, mixture_of
from league.matchmaking import played
from warren.errors import ConfigurationError
from workers.evaluation.duplicate_deals import Side, play_deals
from workers.evaluation.exploitability import measure
from workers.evaluation.saved_sides import SavedSide
from workers.evaluation.scores import of_large, table
from workers.leagues.local import LocalLeague

# The processor's clock does not depend on other load; for one thread on a core of its own both are the same.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
UPDATES = 4  # between readings of the clock: all sides have the same time to within these
DEALS = 1024  # against each of the main agent's own snapshots
SHARES = "shares.json"


class Meter:
    """Exploitability of a league's mixture and of its main agent; each frozen model is tabulated once."""

    def __init__(self, league: LocalLeague) -> None:
        self._league = league
        self._form: SequenceForm | None = None
        self._large = exploitability.large(league.config.env, **league.config.env_kwargs)
        if self._large is None:
            with contextlib.suppress(ConfigurationError):  # too large to be written out
                self._form = exploitability.load(league.config.env, **league.config.env_kwargs)
        self._tables: dict[int, np.ndarray] = {}  # of frozen players, by slot

    @property
    def exact(self) -> bool:
        """Return True if exploitability is computed."""
        return self._form is not None or self._large is not None

    def read(self, last: bool = False) -> dict[str, float | None]:
        """Return exploitabilities in points a game, the size of the league, and the exploiters' part of the mixture."""
        league = self._league
        slots, shares = league.mixture()
        roster = league.league.state.roster
        theirs = np.isin(slots, roster.frozen_of_kinds(frozenset(EXPLOITERS)))
        others = np.array([roster.by_slot[int(slot)].parent != "main" for slot in slots], np.bool_) & ~theirs
        return {
            "nash_mixture": self._of_mixture(slots, shares, last),
            "main_agent": self._of_main(last),
            "frozen": len(slots),
            "in_mixture": int((shares.max(axis=0) > 0.01).sum()),
            "exploiters": int(theirs.sum()),
            "exploiters_share": round(float(shares[:, theirs].sum() / 2.0), 4),
            "others_share": round(float(shares[:, others].sum() / 2.0), 4),
            "steps": sum(trainee.steps for trainee in league.trainees.values()),
            "main_steps": main_steps(league),
            "evaluation_games": int(league.returns.total_games),
            **(self.other_rule() if last and self._form is not None else {}),  # of large games it takes minutes
        }

    def other_rule(self) -> dict[str, float | None]:
        """Return the figures of mixtures of the same players by other rules than the league's.

        If the league's mixture withstands best responses, the other one is the players' equilibrium. Otherwise it is
        the one with exploiters if the league's has none, or the other way round. Neither affects the run.
        """
        league, settings = self._league, self._league.returns.settings
        slots = league.league.state.roster.historical
        if settings.against == BEST_RESPONSES:
            name, other = "mixture_of_players", replace(settings, against=PLAYERS)
        elif len(league.league.state.roster.frozen_of_kinds(frozenset(EXPLOITERS))):
            name = "mixture_without_exploiters" if settings.exploiters else "mixture_with_exploiters"
            other = replace(settings, exploiters=not settings.exploiters)
        else:
            return {}
        shares = mixture_of(league.returns, slots, other, played(league.league.state.roster, slots)).shares
        return {name: self._of_mixture(slots, shares, True)}

    def cycles(self) -> float | None:
        """Return the share of triples of frozen players in which each beats the next, by exact returns.

        None for fewer than three players, and for a game that is too large. Transitive strength has no such triples;
        if the winners were random, a quarter would be cycles.
        """
        slots = self._league.league.state.roster.historical.tolist()
        if self._form is None or len(slots) < 3:
            return None
        gains = exploitability.payoff(self._form, [self._table_of(slot) for slot in slots])
        beats = (gains > 0.0).astype(np.float64)
        triples = len(slots) * (len(slots) - 1) * (len(slots) - 2) / 6.0
        return round(float(np.trace(beats @ beats @ beats)) / 3.0 / triples, 5)

    def _table_of(self, slot: int) -> np.ndarray:
        assert self._form is not None
        if slot not in self._tables:
            self._tables[slot] = table(self._form, self._league.policy_of(slot))
        return self._tables[slot]

    def _of_mixture(self, slots: np.ndarray, shares: np.ndarray, last: bool) -> float | None:
        held = np.flatnonzero(shares.max(axis=0) > 0.0).tolist()
        if not held:  # no player was frozen yet
            return None
        if self._large is not None and last:
            policies = [self._league.policy_of(slot) for slot in slots[held].tolist()]
            return round(of_large(self._large, policies, shares[:, held]), 6)
        if self._form is None:
            return None
        tables = [self._table_of(slot) for slot in slots[held].tolist()]
        return round(exploitability.of(self._form, exploitability.mixture(self._form, tables, shares[:, held])), 6)

    def _of_main(self, last: bool) -> float | None:
        if "main" not in self._league.trainees:
            return None
        policy = self._league.trainees["main"].policy
        if self._large is not None and last:
            return round(of_large(self._large, [policy], np.ones((2, 1))), 6)
        return None if self._form is None else round(exploitability.of(self._form, table(self._form, policy)), 6)


def follow(
    league: LocalLeague,
    budget: float,
    every: float,
    out: TextIO,
    clock: Callable[[], float] = time.perf_counter,
    decisions: bool = False,
    respond: int = 0,
    search: int = 0,
    **labels: Any,
) -> None:
    """Let `league` learn for `budget` s by `clock`, or main `decisions`; write a line every `every` and at the end."""
    meter, seconds, due = Meter(league), 0.0, 0.0

    def spent() -> float:
        return float(main_steps(league)) if decisions else seconds

    def line(last: bool = False, **more: Any) -> None:
        print(json.dumps({**labels, "seconds": round(seconds, 2), **meter.read(last), **more}), file=out, flush=True)

    while spent() < budget:
        if spent() >= due:
            line()
            due = spent() + every
        league.progress = spent() / budget
        started = clock()
        league.round(UPDATES)
        seconds += clock() - started
    responses = response(league, respond) if respond and not meter.exact else {}
    responses |= against_search(league, search)
    line(last=True, least_win_rate=least_win_rate(league), cycles=meter.cycles(), **responses)


def main_steps(league: LocalLeague) -> int:
    """Return the decisions that the main agent has learned from, 0 without one."""
    return league.trainees["main"].steps if "main" in league.trainees else 0


def response(league: LocalLeague, budget: int) -> dict[str, Any]:
    """Return the gain of best responses of `budget` decisions against the mixture, and its interval."""
    slots, shares = league.mixture()
    held = np.flatnonzero(shares.max(axis=0) > 0.0)
    policies = [league.policy_of(slot) for slot in slots[held].tolist()]
    gain = measure(
        league.config, SavedSide("the mixture", policies, shares[:, held]), budget, DEALS * 8, 1, warm=True
    ).gain
    return {"response": round(gain.mean, 5), "response_within": [round(gain.lower, 5), round(gain.upper, 5)]}


def least_win_rate(league: LocalLeague, deals: int = DEALS) -> float | None:
    """Return the main agent's lowest win rate, a draw for half, against its own snapshots; None without snapshots."""
    roster = league.league.state.roster
    past = roster.snapshots_of("main") if "main" in league.trainees else np.empty(0, np.int64)
    if not len(past):
        return None
    games = envs.make_two_player(league.config.env, min(512, deals), league.config.seed, **league.config.env_kwargs)
    generator = torch.Generator().manual_seed(league.config.seed)
    main, rates = Side.of(league.trainees["main"].policy), []
    for slot in past.tolist():
        returns = play_deals(games, main, Side.of(league.policy_of(slot)), deals, generator)
        rates.append(float((np.sign(returns) / 2.0 + 0.5).mean()))
    return round(min(rates), 4)


def keep(league: LocalLeague, folder: Path) -> None:
    """Write the members of the mixture and their shares to `folder`, to play against others (see meeting.py)."""
    slots, shares = league.mixture()
    held = np.flatnonzero(shares.max(axis=0) > 0.0)
    folder.mkdir(parents=True, exist_ok=True)
    for number, slot in enumerate(slots[held].tolist()):
        (folder / f"{number}.safetensors").write_bytes(weights_to_bytes(league.policy_of(slot), {}))
    (folder / SHARES).write_text(json.dumps(shares[:, held].tolist()))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("changes", nargs="*", help="settings other than the file's: algorithm.epochs=2")
    parser.add_argument("--side", choices=SIDES, default=LEAGUE)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of learning")
    parser.add_argument("--decisions", type=float, help="of the main agent, in place of seconds")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: of this process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=5.0, help="seconds, or decisions, between lines, at least")
    parser.add_argument("--core", type=int, help="the core that this process stays on")
    parser.add_argument("--device", default="cpu", help="that players learn on; they act on the CPU")
    parser.add_argument(
        "--respond",
        type=int,
        default=0,
        metavar="DECISIONS",
        help="in games without an exact figure, of best responses to the mixture at the end; 0: none",
    )
    parser.add_argument("--search", type=int, default=0, metavar="GAMES", help="of Connect Four against a tree search")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the mixture's models and shares")
    parser.add_argument("--out", type=Path, help="JSON lines are added there; else printed")
    given = parser.parse_intermixed_args()
    if given.core is not None:
        os.sched_setaffinity(0, {given.core})
    torch.set_num_threads(1)  # faster for networks this small
    try:
        config = settings(given.game, given.seed, given.side, given.changes)
        if given.decisions is not None and "main" not in config.players:
            parser.error(f"--decisions counts the main agent's, and --side {given.side} has none: give --seconds")
        league = LocalLeague(config, device=given.device)
    except ConfigurationError as error:
        parser.error(str(error))
    labels = {"game": given.game, "side": given.side, "seed": given.seed}
    clock, budget = CLOCKS[given.clock], given.seconds if given.decisions is None else given.decisions
    with given.out.open("a") if given.out else contextlib.nullcontext(sys.stdout) as out:
        counted = given.decisions is not None
        follow(league, budget, given.every, out, clock, counted, given.respond, given.search, **labels)
    if given.keep is not None:
        keep(league, given.keep)


if __name__ == "__main__":
    main()
