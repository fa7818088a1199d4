"""The league rebuilt from its stream to any moment, and another matchmaker's choices at each of its matches.

    python -m league.replay --redis URL --run NAME                      # standings, and whether the live league agrees
    python -m league.replay --run NAME --until 2026-05-04T12:00         # the league then; also an event id, or ms
    python -m league.replay --file runs/kuhn/TRIAL --through pfsp --set weighting=squared --player main

Through another matchmaker: at every match of the history, the other kind sees the league as it was at that moment and
says how likely it would have met each opponent. Results of matches that were never played are not made up.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from league.cli import overview
from league.cli.tables import output, table
from league.matchmaking import kind_of
from league.models.command_line import add_source, existing, guarded, value_of
from league.models.snapshots import STREAM
from league.rules.ratings import Skills
from league.state.league_state import LeagueState
from league.state.replay import Comparison, Entries, before, fold, read_file, read_folder, through, until_id
from warren.errors import LeagueError
from warren.progress import shown

STRENGTH = ("strength", "strength_lower", "strength_upper")
COLUMNS = ("player", "kind", "elo", "skill", *STRENGTH, "games", "win_rate", "steps", "state", "provisional")


def standings(state: LeagueState, skills: Skills) -> list[dict[str, Any]]:
    """Return the standings of league.show without removed players, with skills: strengths and their intervals."""
    rows = [row for row in overview.standings(state) if row["state"] != "removed"]
    skilled = []
    for row in rows:
        skill = skills[row["player"]]
        lower, upper = skill.interval()
        skilled.append(
            {**row, "skill": round(skill.ordinal, 2), "strength": round(skill.mu, 2)}
            | {"strength_lower": round(lower, 2), "strength_upper": round(upper, 2)}
        )
    return [{name: row[name] for name in COLUMNS} for row in skilled]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; exit status 1 when the live league differs from its stream, 2 for an error."""
    parser = argparse.ArgumentParser(prog="python -m league.replay", description=(__doc__ or "").partition("\n")[0])
    add_source(parser)
    parser.add_argument(
        "--file", type=Path, help="a saved league instead of Redis: a run folder, its folder league, or a league.jsonl"
    )
    parser.add_argument("--until", help="stop at this event id, ms of Unix time, or date and time")
    parser.add_argument("--through", metavar="KIND", help="compare with what this kind of player would have chosen")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="an option of that kind")
    parser.add_argument("--player", action="append", help="only for this player; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return guarded(lambda: run(parser.parse_args(argv)))


def run(given: argparse.Namespace) -> int:
    """Do what the command line asks."""
    store = None if given.file else existing(given)[0]
    # The live league may go on meanwhile, so it is read once and compared with the stream up to that moment.
    live = None if store is None or given.until or given.through else store.load()
    last = live.last_event if live is not None else until_id(given.until) if given.until else None
    entries = before(shown(_saved(given.file) if store is None else store.events(), "events"), last)
    if given.through:
        options = {name: value_of(value) for name, _, value in (option.partition("=") for option in given.set)}
        found = through(entries, kind_of(given.through, options), given.player)
        rows = [{"player": name, "distance": round(c.distance, 4), **_top(c)} for name, c in found.items()]
        _show(rows, given.json, _comparison_table)
        return 0
    skills = Skills()
    state = fold(entries, skills)
    _show(standings(state, skills), given.json, _standings_table)
    if live is None:
        return 0
    differences = live.differences(state)
    print("equal to the live league" if not differences else "\n".join(["differs from the live league:", *differences]))
    return 1 if differences else 0


def _saved(path: Path) -> Entries:
    """Return (id, event) of all that a league's folder keeps, or of one file. Raises LeagueError without a stream."""
    stream = stream_in(path)
    return read_file(stream) if path.is_file() else read_folder(stream.parent)


def _top(comparison: Comparison) -> dict[str, Any]:
    expected = sorted(comparison.expected.items(), key=lambda item: -item[1])[:5]
    return {
        "matches": comparison.matches,
        "without_opponent": comparison.without_opponent,
        "likelihood": round(comparison.likelihood, 4),
        "would_meet": {name: round(games, 1) for name, games in expected},
    }


def stream_in(path: Path) -> Path:
    """Return the saved stream at `path`. Raises LeagueError where there is none."""
    for found in (path, path / STREAM, path / "league" / STREAM):
        if found.is_file():
            return found
    raise LeagueError(f"--file {path}: there is no {STREAM}; name a run folder, its folder league, or the file itself")


def _show(rows: list[dict[str, Any]], as_json: bool, draw: Callable[[list[dict[str, Any]], int], Table]) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    console = output()
    console.print(draw(rows, console.width))


def _standings_table(rows: list[dict[str, Any]], width: int) -> Table:
    columns = {
        "player": [row["player"] for row in rows],
        "kind": [row["kind"] for row in rows],
        "state": [row["state"] for row in rows],
        ">games": [f"{row['games']:,.0f}" for row in rows],
        ">win rate": ["" if row["win_rate"] is None else f"{row['win_rate']:.3f}" for row in rows],
        ">Elo": [f"{row['elo']:.0f}{'?' if row['provisional'] else ' '}" for row in rows],
        ">skill": [f"{row['skill']:.2f}" for row in rows],
        ">strength, 95 %": [
            f"{row['strength']:.1f} ({row['strength_lower']:.1f} to {row['strength_upper']:.1f})" for row in rows
        ],
        ">steps": [f"{row['steps']:,}" if row["steps"] else "" for row in rows],
    }
    return table(columns, width, ("kind", ">games", ">steps"))


def _comparison_table(rows: list[dict[str, Any]], width: int) -> Table:
    columns = {
        "player": [row["player"] for row in rows],
        ">matches": [f"{row['matches']:,}" for row in rows],
        ">distance": [f"{row['distance']:.3f}" for row in rows],
        ">likelihood": [f"{row['likelihood']:.3f}" for row in rows],
        ">no opponent": [f"{row['without_opponent']:,}" for row in rows],
        "would meet": [", ".join(f"{name} {games:,.0f}" for name, games in row["would_meet"].items()) for row in rows],
    }
    return table(columns, width, (">no opponent", ">likelihood"))
