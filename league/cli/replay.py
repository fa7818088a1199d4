"""The league rebuilt from its stream to any moment, and its history asked what another matchmaker would have done.

    python -m league.replay --redis URL --run NAME                      # standings, and equal to the live league or not
    python -m league.replay --run NAME --until 2026-05-04T12:00         # as it was then; also an event id, or ms
    python -m league.replay --file league.jsonl --through pfsp --set weighting=squared --player main

Through another matchmaker: at every match of the history, the other kind sees the league as it was at that moment and
says how likely it would have met each opponent. Results of matches that were never played are not made up.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from league.cli.commands import add_source, connected, guarded, value_of
from league.cli.overview import record_of
from league.matchmaking import kind_of
from league.redis.store import Store
from league.rules.ratings import Skills
from league.state.league_state import LeagueState
from league.state.replay import Comparison, Entries, before, fold, read_file, through, until_id


def standings(state: LeagueState, skills: Skills) -> list[dict[str, Any]]:
    """One row a player, the strongest by Elo first."""
    rows = []
    for player in state.roster.present:
        games, rate = record_of(state, player.slot)
        skill = skills[player.name]
        rows.append(
            {
                "player": player.name,
                "kind": player.kind,
                "elo": round(state.ratings[player.slot], 1),
                "skill": round(skill.ordinal, 2),
                "games": round(games, 1),
                "win_rate": None if rate is None else round(rate, 3),
                "steps": state.progress[player.name].steps,
                "frozen": player.frozen,
            }
        )
    return sorted(rows, key=lambda row: -float(row["elo"]))


def main(argv: list[str] | None = None) -> int:
    """The command line; exit status 1 when the live league differs from its stream, 2 for an error."""
    parser = argparse.ArgumentParser(prog="python -m league.replay", description=(__doc__ or "").partition("\n")[0])
    add_source(parser)
    parser.add_argument("--file", type=Path, help="a saved stream (league.jsonl of a snapshot) instead of Redis")
    parser.add_argument("--until", help="stop at this event id, ms of Unix time, or date and time")
    parser.add_argument("--through", metavar="KIND", help="compare with what this kind of player would have chosen")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="an option of that kind")
    parser.add_argument("--player", action="append", help="only for this player; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return guarded(lambda: run(parser.parse_args(argv)))


def run(given: argparse.Namespace) -> int:
    """Do what the command line asks."""
    store = None if given.file else Store(*connected(given))
    entries: Entries = read_file(given.file) if store is None else store.events()
    entries = before(entries, until_id(given.until) if given.until else None)
    if given.through:
        options = {name: value_of(value) for name, _, value in (option.partition("=") for option in given.set)}
        found = through(entries, kind_of(given.through, options), given.player)
        _show([{"player": name, "distance": round(c.distance, 4), **_top(c)} for name, c in found.items()], given.json)
        return 0
    skills = Skills()
    state = fold(entries, skills)
    _show(standings(state, skills), given.json)
    if store is None or given.until:
        return 0
    live = store.load()  # of one moment, and its stream up to that moment: the league may go on meanwhile
    differences = live.differences(fold(before(store.events(), live.last_event)))
    print("equal to the live league" if not differences else "\n".join(["differs from the live league:", *differences]))
    return 1 if differences else 0


def _top(comparison: Comparison) -> dict[str, Any]:
    expected = sorted(comparison.expected.items(), key=lambda item: -item[1])[:5]
    return {
        "matches": comparison.matches,
        "without_opponent": comparison.without_opponent,
        "likelihood": round(comparison.likelihood, 4),
        "would_meet": {name: round(games, 1) for name, games in expected},
    }


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
