"""Recorded matches of a league as episodes: what each seat saw and did in each game."""

from __future__ import annotations

from pathlib import Path

from warren.errors import ReplayError
from workers.replays.episodes import EpisodeRecorder, Episodes
from workers.replays.match_record import RecordedMatch
from workers.replays.rebuild import moves
from workers.replays.recorded_run import RecordedRun
from workers.rollout.games.game_log import PlayedGame


def decisions(folder: Path, player: str | None = None, games: int | None = None) -> Episodes:
    """Play a league's recorded games again and return their decisions; an episode is one seat of a game.

    `player`: name of the player whose decisions to return; None: both players'. `games`: the most episodes, the oldest
    first. Raises ConfigurationError for a folder that is not a league's, and ReplayError if nothing is recorded, or
    only of other players, or a game does not go as recorded.
    """
    run = RecordedRun(folder)
    env, players = run.games(), set[str]()
    found = EpisodeRecorder(run.league.env, env.single_observation_space, env.single_action_space)
    for record in run.matches():
        for game in record.games:
            names = {seat: player_of(record, game, seat) for seat in (0, 1)}
            players |= set(names.values())
            if player is not None and player not in names.values():
                continue
            made = list(moves(env, game))
            for seat in (0, 1):
                mine = [move for move in made if move.turn.to_move[0] == seat]
                if not mine or player not in (None, names[seat]) or found.count == games:
                    continue
                for move in mine:
                    found.decided(move.turn.observation[0], move.action, move.turn.action_mask[0])
                found.earned(float(game.returns[seat]))
                found.end()
        if found.count == games:
            break
    if not found.count:
        others = f" of {player!r}; it has games of {', '.join(sorted(players))}" if players else ""
        remedy = "" if players else "; record them: league.replay_every=1 (docs/replays.md)"
        raise ReplayError(f"{run.folder} has no recorded games{others}{remedy}")
    return found.episodes(str(run.folder))


def player_of(record: RecordedMatch, game: PlayedGame, seat: int) -> str:
    """Return the name of the player in a seat of one game of a match."""
    return record.home if seat == game.home else record.away
