"""Checks of a league's settings against the game that it plays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from envs import exploitability, is_gamecore
from envs.sources import most_at_once
from envs.two_player.vector_env import PLAYERS, TurnVectorEnv
from league.empirical_game.mixture import EXACT, GAMES, PAIRS
from league.matchmaking import kind_of
from league.matchmaking.sides import SIDE
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig

MOST_SIDES = 10  # a result has one digit for each player's place


def unfit(league: LeagueConfig, games: TurnVectorEnv, served: bool) -> Iterator[str]:
    """Yield a problem for each setting that needs what the game lacks; `served`: whether env runners step it."""
    if is_gamecore(league.env):
        yield from _of_gateways(league)
        league = replace(league, replay_every=0, replay_upsets=None, replay_evaluations=0)
    if league.has_roles:
        sides = {name: player.config.get(SIDE) for name, player in league.players.items()}
        yield from _wrong_sides(sides, len(games.teams))
    if len(games.teams) > PLAYERS:
        yield from _of_two_sides(league, f"{league.env!r} has {len(games.teams)} sides")
    elif league.has_roles:
        yield from _of_two_sides(league, "its players take one side each (config.side)")
    if games.players > PLAYERS:
        yield from _of_two_players(league, games, served)
    if league.records and games.chance is None:
        yield (
            f"games of {league.env!r} cannot be recorded, as replay_every, replay_upsets or "
            "replay_evaluations ask: they cannot begin from a seed each; draw all chance of your own game from "
            "self.chance = envs.Chance(num_envs, seed) (docs/replays.md), or set these to 0 and null"
        )


def _wrong_sides(sides: Mapping[str, Any], teams: int) -> Iterator[str]:
    """Yield the problems of the sides that players take, in a league where any player is bound to one side."""
    for name, side in sides.items():
        if side is None:
            yield f"player {name!r} has no config.side, and others have; give each player one, from 0 to {teams - 1}"
        elif side not in range(teams):
            yield f"config.side={side} of player {name!r}: the game has {teams} sides, from 0 to {teams - 1}"
    for side in set(range(teams)) - set(sides.values()):
        yield f"no player takes side {side}; add one with config.side={side}"


def _of_two_sides(league: LeagueConfig, why: str) -> Iterator[str]:
    """Yield a problem for each setting that needs two sides that every player takes; `why` says why that fails."""
    if league.goal is not None:
        yield f"goal={league.goal} is of two sides that every player takes, and {why}; use goal=null"
    if league.evaluation != GAMES or league.evaluation_share > 0:
        yield (
            f"evaluation={league.evaluation}, evaluation_share={league.evaluation_share}: payoffs between frozen "
            f"players are of two sides that all take, and {why}; use evaluation=games and evaluation_share=0"
        )
    for name, player in league.players.items():
        kind = kind_of(player.kind, player.config)
        if kind.needs_returns or kind.wants_looks:
            yield (
                f"player {name!r}: kind {player.kind} goes by returns of two sides that every player takes, and {why}; "
                "use kinds that go by win rates, as main_agent, pfsp or main_exploiter with freeze: win_rate"
            )


def _of_gateways(league: LeagueConfig) -> Iterator[str]:
    """Yield a problem for each setting that needs games that are stepped, for a game that drives itself."""
    why = f"{league.env!r} drives itself"
    if league.evaluation != GAMES or league.evaluation_share > 0:
        yield (
            f"evaluation={league.evaluation}, evaluation_share={league.evaluation_share}: evaluators step the games "
            f"between frozen players, and {why}; use evaluation=games and evaluation_share=0"
        )
    if league.references:
        yield f"references={list(league.references)}: evaluators step games against them, and {why}; use references=[]"
    if league.records:
        yield (
            "replay_every, replay_upsets and replay_evaluations: the process that steps games records them, and "
            f"{why}; set them to 0 and null"
        )
    for name, player in league.players.items():
        if kind_of(player.kind, player.config).needs_returns or kind_of(player.kind, player.config).wants_looks:
            yield (
                f"player {name!r}: kind {player.kind} goes by returns of games that evaluators step, and {why}; use "
                "kinds that go by win rates, as main_agent, pfsp or main_exploiter with freeze: win_rate"
            )
        if player.minimax:
            yield f"minimax={player.minimax} of player {name!r} is of games that actors step, and {why}; use 0"


def _of_two_players(league: LeagueConfig, games: TurnVectorEnv, served: bool) -> Iterator[str]:
    """Yield a problem for each setting that needs games of two players; `games` have more."""
    why = f"of games of two players, and {league.env!r} has {games.players}"
    if len(games.teams) > MOST_SIDES:
        yield f"env={league.env!r} has {len(games.teams)} sides; a league's games have at most {MOST_SIDES}"
    if served:
        yield f"sampling=served is {why}; use gathered or streaming"
    if league.records:
        yield f"replay_every, replay_upsets and replay_evaluations are {why}; set them to 0 and null"
    for name, player in league.players.items():
        if player.minimax:
            yield f"minimax={player.minimax} of player {name!r} is {why}; use 0"


def engines(league: LeagueConfig) -> Iterator[str]:
    """Yield a sentence for each number of games that is too large where each game is a separate engine."""
    most = most_at_once(league.env)
    for name in ("games", "evaluation_games", "reference_games"):
        if most is not None and (given := getattr(league, name)) > most:
            yield (
                f"league.{name}: {given} is too many for {league.env!r}, where each game is a separate engine; use at "
                f"most {most}, as league=engines league.env={league.env} does"
            )


def needing_the_whole_game(league: LeagueConfig) -> Iterator[str]:
    if league.goal is None and league.evaluation != EXACT:
        return
    try:
        exploitability.load(league.env, **league.env_kwargs)
    except ConfigurationError as error:
        for problem in error.problems:
            if league.goal is not None:
                yield (
                    f"league: goal={league.goal} is an exploitability, and cannot be reached: {problem}; without one "
                    "(league.goal=null) the run ends by seconds or total_steps"
                )
            if league.evaluation == EXACT:
                yield (
                    f"league: evaluation={EXACT} computes payoffs from the whole game: {problem}; for others use "
                    f"evaluation={PAIRS} or {GAMES}"
                )
