"""Checks of a league's settings against the game that it plays."""

from __future__ import annotations

from collections.abc import Iterator

from envs import exploitability
from envs.sources import most_at_once
from envs.two_player.vector_env import PLAYERS, TurnVectorEnv
from league.empirical_game.mixture import EXACT, GAMES, PAIRS
from warren.errors import ConfigurationError
from workers.config.league import LeagueConfig


def unfit(league: LeagueConfig, games: TurnVectorEnv) -> Iterator[str]:
    """Yield which settings ask for what the game does not give."""
    if games.players != PLAYERS:
        yield f"env={league.env!r} is for {games.players} players; leagues play games of two"
    if league.records and games.chance is None:
        yield (
            f"games of {league.env!r} cannot be recorded, as replay_every, replay_upsets or "
            "replay_evaluations ask: they cannot begin from a seed each; draw all chance of your own game from "
            "self.chance = envs.Chance(num_envs, seed) (docs/replays.md), or set these to 0 and null"
        )


def engines(league: LeagueConfig) -> Iterator[str]:
    """Yield a sentence for each number of games that is too large for a game that is a separate engine each."""
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
