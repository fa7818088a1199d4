"""Leagues of teams, of roles and of three players, each trained in this process: newest players against a run's first.

A run's first snapshot is its untrained player, its second the first one that has learned. All actions are drawn, none
is the likeliest. Teams and roles have shares of games won, a draw being half of one; three players have mean returns.
Teams swap seats with the same chance; of three players the newest has each seat equally often. In games of teams a
hunter walks to the token by the shortest way. Intervals are of 95 %, for the games of one run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

import envs
from agents.networks import Memory
from agents.policies import ActionBatch, Policy
from league.rules.ratings import Skills
from league.state.league_state import Event
from league.state.replay import fold
from workers.config.league import LeagueConfig
from workers.config.schema import CONF
from workers.evaluation.cell_games import Player
from workers.evaluation.duplicate_deals import Estimate, Seated, Side, estimate, play_deals, play_once
from workers.leagues.local import LocalLeague

CONFIGURATIONS = {"teams": "teams", "roles": "roles", "three": "kuhn_of_three"}  # in conf/league
GAMES, SLOTS, CONFIDENCE = 12_288, 512, 0.95  # games of each figure; at a time
TOLD = 10.0  # s of the processor between lines of progress
CELLS = 12  # of examples/teams/tokens.py
SIZE, MOST_MOVES, STEPS = 5, 24, ((0, 1), (1, 0), (0, -1), (-1, 0), (0, 0))  # of examples/teams/chase.py
Figures = dict[str, tuple[float, float, float]]  # name -> a mean or a rating, and its interval


def measure(games: Sequence[str], seconds: float, seeds: int) -> dict[str, Any]:
    """Return the figures of each game, a list by seed; each run has `seconds` of the processor."""
    found: dict[str, Any] = {"seconds": seconds, "seeds": seeds}
    for game in games:
        for seed in range(1, seeds + 1):
            run = Run(game, seed)
            run.learn(seconds)
            if any(len(run.snapshots(name)) < 2 for name in run.mains):
                raise SystemExit(f"error: --seconds: {seconds:g} is too short for {game}; use more")
            for name, (mean, lower, upper) in MEASURES[game](run).items():
                print(f"{game}, seed {seed}: {name} {mean:.3f} ({lower:.3f} to {upper:.3f})", flush=True)
                found.setdefault(f"{game}_{name}", []).append([round(each, 3) for each in (mean, lower, upper)])
            found.setdefault(f"{game}_decisions", []).append(run.decisions)
    if "roles" in games:
        found["roles_caught_under_best_play"] = round(caught_under_best_play(), 4)
    return found


def settings(game: str, seed: int) -> LeagueConfig:
    """Return the league of conf/league for `game`."""
    given: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"league/{CONFIGURATIONS[game]}.yaml"))
    return replace(LeagueConfig.from_dict(given), seed=seed)


class Run:
    """A league that learns `game`, and games between its players afterwards."""

    def __init__(self, game: str, seed: int) -> None:
        self.game, self.seed = game, seed
        self.events: list[Event] = []
        config = settings(game, seed)
        self.league = LocalLeague(config, self.events.append)
        self.games = envs.make_two_player(config.env, SLOTS, 10_000 + seed, **config.env_kwargs)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def decisions(self) -> int:
        """Return the decisions of all players so far."""
        return sum(trainee.steps for trainee in self.league.trainees.values())

    @property
    def mains(self) -> list[str]:
        """Return the names of the main agents."""
        return [name for name, player in self.league.config.players.items() if player.kind == "main_agent"]

    def learn(self, seconds: float) -> None:
        """Let the league learn for `seconds` of the processor, and say now and then how far it is."""
        spent, told = 0.0, TOLD
        while spent < seconds:
            self.league.progress = spent / seconds
            started = time.process_time()
            self.league.round()
            spent += time.process_time() - started
            if spent >= told:
                print(f"{self.game}, seed {self.seed}: {spent:.0f} s, {self.decisions:,} decisions", flush=True)
                told += TOLD

    def newest(self, name: str = "main") -> Policy:
        """Return a learning player's policy."""
        return self.league.trainees[name].policy

    def snapshots(self, name: str = "main") -> list[str]:
        """Return the names of a player's snapshots, oldest first."""
        return [snapshot for snapshot in self.league.frozen if snapshot.startswith(f"{name}@")]

    def snapshot(self, number: int, name: str = "main") -> Policy:
        """Return a snapshot's policy, by its place in `snapshots`."""
        return self.league.frozen[self.snapshots(name)[number]]

    def swapped(self, one: Player, other: Player) -> Estimate:
        """Return the share of games that `one` wins against `other` with both teams."""
        found = play_deals(self.games, Side.of(one), Side.of(other), GAMES // 2, self.generator)
        return share(np.sign(found).mean(axis=0))

    def seated(self, players: Sequence[Player], team: int = 0, games: int = GAMES) -> np.ndarray:
        """Return what `team` gains in games of `players`, one per team; float64 [games]."""
        sides = [Side([player], np.ones((len(players), 1))) for player in players]
        found = []
        for _ in range(games // SLOTS):
            movers = [
                Seated(side, place, SLOTS, self.generator, self.games.players) for place, side in enumerate(sides)
            ]
            found.append(play_once(self.games, self.games.reset(), movers, team))
        return np.concatenate(found)


def share(points: np.ndarray) -> Estimate:
    """Return the share of wins, from `points` within [-1, 1], 1 for a win and 0 for a draw."""
    found = estimate(points / 2.0, 0.5, CONFIDENCE)
    return Estimate(0.5 + found.mean, 0.5 + found.lower, 0.5 + found.upper, found.count)


def of_teams(run: Run) -> Figures:
    """Return the main agent's shares against its first two snapshots and the hunter, and the first one's share."""
    main, hunter = run.newest(), Hunter()
    found = {
        "first": run.swapped(main, run.snapshot(0)),
        "second": run.swapped(main, run.snapshot(1)),
        "hunter": run.swapped(main, hunter),
        "first_against_hunter": run.swapped(run.snapshot(0), hunter),
    }
    return {name: bounds(each) for name, each in found.items()}


def of_roles(run: Run) -> Figures:
    """Return each role's share against the other's first snapshot, and the catcher's between firsts and newest."""
    first = {role: run.snapshot(0, role) for role in ("catcher", "runner")}
    newest = {role: run.newest(role) for role in first}
    caught = {
        "catcher": (newest["catcher"], first["runner"]),
        "runner": (first["catcher"], newest["runner"]),
        "caught_by_first": (first["catcher"], first["runner"]),
        "caught_by_newest": (newest["catcher"], newest["runner"]),
    }
    won = {name: run.seated(pair) * (-1.0 if name == "runner" else 1.0) for name, pair in caught.items()}
    return {name: bounds(share(np.sign(points))) for name, points in won.items()}


def of_three(run: Run) -> Figures:
    """Return the main agent's mean returns against two of its first snapshots, and the ratings of its snapshots."""
    found = {}
    for number, name in enumerate(("first", "second")):
        other, teams = run.snapshot(number), range(len(run.games.teams))
        returns = [
            run.seated([run.newest() if place == team else other for place in teams], team, GAMES // len(teams))
            for team in teams
        ]
        found[name] = bounds(estimate(np.mean(returns, axis=0), run.games.max_return, CONFIDENCE))
    skills, names = Skills(), run.snapshots()
    fold([(f"{place}-0", event) for place, event in enumerate(run.events)], skills)
    for name, snapshot in (("first", names[0]), ("second", names[1]), ("last", names[-1])):
        found[f"rating_of_{name}"] = (skills[snapshot].mu, *skills[snapshot].interval())
    return found


def bounds(found: Estimate) -> tuple[float, float, float]:
    """Return (mean, lower, upper)."""
    return found.mean, found.lower, found.upper


MEASURES = {"teams": of_teams, "roles": of_roles, "three": of_three}


class Hunter:
    """A team of examples/teams/tokens.py each of whose players walks to the token by the shortest way."""

    def initial_memory(self, n: int) -> Memory:
        return {}

    def step(self, observation: np.ndarray, memory: Memory, *_: Any, **__: Any) -> ActionBatch:
        """Return the moves, int64 [N]: 0 is back, 1 stay, 2 forward."""
        ahead = observation[:, :CELLS].argmax(axis=1)
        return ActionBatch(np.where(ahead == 0, 1, np.where(2 * ahead > CELLS, 0, 2)), {}, memory)


def caught_under_best_play() -> float:
    """Return the share of games of examples/teams/chase.py that its catcher wins if both sides play perfectly."""

    @cache
    def caught(catcher: tuple[int, ...], runner: tuple[int, ...], moves: int) -> bool:
        if catcher == runner or moves == MOST_MOVES:
            return catcher == runner
        if moves % 2 == 0:
            return any(caught(moved(catcher, step), runner, moves + 1) for step in STEPS[:4])
        return all(caught(catcher, moved(runner, step), moves + 1) for step in STEPS)

    def moved(place: tuple[int, ...], step: tuple[int, int]) -> tuple[int, ...]:
        return tuple(min(max(at + by, 0), SIZE - 1) for at, by in zip(place, step, strict=True))

    starts = [divmod(cell, SIZE) for cell in range(1, SIZE * SIZE)]
    return sum(caught((0, 0), start, 0) for start in starts) / len(starts)
