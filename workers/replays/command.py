"""`python -m workers.replay`: recorded matches listed, checked, shown turn by turn, and filmed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from league.cli.tables import output, table
from league.matchmaking.view import ModelRef
from warren import progress
from warren.errors import ConfigurationError, ReplayError
from workers.config.command_line import guarded
from workers.replays.drawn import draw_unseen, drawing
from workers.replays.match_record import RecordedMatch
from workers.replays.rebuild import check, moves
from workers.replays.recorded_run import RecordedRun
from workers.replays.video import Video
from workers.ui import returns

Say = Callable[[str], None]
DIFFERENT = 1  # exit status if a match does not come to its recorded result
HEADINGS = ("match", "home", "away", ">games", ">result", "recorded as", "ended")
PAGE = 500  # matches in a table
FRAMES_PER_SECOND = 2.0  # in the film of a game of under 200 moves, such as a board game


def listed(run: RecordedRun, as_json: bool) -> int:
    """Print a line for each recorded match, some hundred at a time: a run may have recorded more than memory holds."""
    if as_json:
        for record in run.matches():
            print(json.dumps(summary(record)))
        return 0
    lines, number = map(line, run.matches()), 0
    console = output()
    while page := list(islice(lines, PAGE)):
        columns = dict(zip(HEADINGS, zip(*page, strict=True), strict=True))
        console.print(table(columns, console.width, ("recorded as", ">games")))
        number += len(page)
    print(f"{number} matches; results are the home player's mean returns")
    return 0


def line(record: RecordedMatch) -> tuple[str, ...]:
    """Return the cells of a match's line, in the order of HEADINGS."""
    return (
        record.match,
        record.home,
        record.away,
        str(len(record.games)),
        returns.shown(float(record.returns.mean())) if record.games else "",
        ", ".join(record.rules),
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.ended_at)),
    )


def summary(record: RecordedMatch) -> dict[str, object]:
    """Return the list's facts about a match, for programs."""
    names = ("match", "home", "away", "outcomes", "ended_at", "source")
    return {
        **{name: getattr(record, name) for name in names},
        "rules": list(record.rules),
        "games": len(record.games),
        "mean_return": float(record.returns.mean()) if record.games else None,
    }


def checked(run: RecordedRun, matches: Iterable[RecordedMatch], say: Say) -> int:
    """Play matches again and compare; return the exit status."""
    env = run.games()
    number = right = games = decisions = again = 0
    for record in matches:
        found = check(record, env, run.policy)
        number, right = number + 1, right + (not found.problems)
        games, decisions, again = games + found.games, decisions + found.decisions, again + found.decided_again
        for problem in found.problems:
            say(f"match {record.match}: {problem}")
    say(f"{right} of {number} matches came to their recorded results, {games:,} games from their seeds and actions")
    say(
        f"{again:,} of {decisions:,} decisions were made again by the weights that made them; of the others, the "
        "weights were not kept"
    )
    return 0 if right == number else DIFFERENT


def shown(run: RecordedRun, record: RecordedMatch, numbers: Iterable[int], say: Say) -> None:
    """Print games of a match as text, turn by turn."""
    env = run.games()
    for number in numbers:
        game = record.games[number]
        names = [record.home, record.away] if game.home == 0 else [record.away, record.home]
        say(f"game {number + 1} of {len(record.games)}: {names[0]} is player 0, {names[1]} is player 1")
        for move in moves(env, game):
            seat = int(move.turn.to_move[0])
            weights = record.weights(game, seat, move.number)
            say(env.text(0))
            played = ModelRef(weights.player, weights.version)
            say(f"{move.number + 1}. player {seat} ({played}) plays {env.action_text(0, move.action)}\n")
        if text := env.last_text(0):
            say(text)
        say(f"game {number + 1} is over: {names[0]} {game.returns[0]:+g}, {names[1]} {game.returns[1]:+g}\n")


def filmed(run: RecordedRun, record: RecordedMatch, number: int, path: Path, most: int | None = None) -> Video:
    """Film one game: a frame before each move and one of its end, if the game draws that.

    `most`: the most frames before moves, evenly spread if there are more moves; None: any number.
    """
    draw_unseen()
    env = drawing(run.league.env, run.games)
    video, actions = Video(path), len(record.games[number].actions)
    video.fps = FRAMES_PER_SECOND if actions < 200 else video.fps
    every = 1 if most is None else -(-actions // most)
    try:
        for move in moves(env, record.games[number]):
            if move.number % every == 0:
                video.add(env.picture(0))
        if (last := env.last_picture(0)) is not None:
            video.add(last)
    finally:
        env.close()
        video.close()
    return video


def numbers_of(record: RecordedMatch, game: int | None) -> list[int]:
    """Return the numbers of the games to show. Raises ConfigurationError for a game that the match does not have."""
    if not record.games:
        raise ReplayError(f"match {record.match} has no games")
    if game is None:
        return list(range(len(record.games)))
    if not 1 <= game <= len(record.games):
        raise ConfigurationError(f"--game {game}: match {record.match} has games 1 to {len(record.games)}")
    return [game - 1]


def run(given: argparse.Namespace, say: Say = print) -> int:
    """Do what the command line asks for; return the exit status."""
    recorded = RecordedRun(given.folder)
    if given.match is None:
        for option in ("game", "video"):
            if getattr(given, option) is not None:
                raise ConfigurationError(f"--{option}: of which match? name one; without any option they are listed")
        if given.check:
            return checked(recorded, progress.shown(recorded.matches(), "matches", recorded.count()), say)
        return listed(recorded, given.json)
    record = recorded.match(given.match)
    if given.check:
        return checked(recorded, [record], say)
    if given.json:
        say(json.dumps({**summary(record), "games": [plain(game) for game in record.games]}))
        return 0
    numbers = numbers_of(record, given.game)
    if given.video is not None:
        video = filmed(recorded, record, numbers[0], given.video)
        say(f"{video.frames} frames of game {numbers[0] + 1} are in {video.path}")
        return 0
    shown(recorded, record, numbers, say)
    say(f"{record.home} against {record.away}: {record.outcomes or 'nothing counted'}")
    return 0


def plain(game: object) -> dict[str, object]:
    """Return a game as JSON values."""
    fields = dict(vars(game))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()}


def main(description: str | None = None) -> int:
    """Run the command line; return exit status 1 if a match does not come to its recorded result."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.replay", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="RUN", help="a league's run folder; of runs/kuhn the newest")
    parser.add_argument("match", nargs="?", metavar="MATCH", help="its id, or how that begins, or last; default: list")
    parser.add_argument("--game", type=int, metavar="N", help="only the N-th game of the match")
    parser.add_argument("--check", action="store_true", help="play it again, or all, and compare with what is recorded")
    parser.add_argument("--video", type=Path, metavar="FILE", help="film a game, as it draws itself: .gif or .mp4")
    parser.add_argument("--json", action="store_true", help="print JSON, a line a match")
    options = parser.parse_args()
    return guarded(lambda: run(options))
