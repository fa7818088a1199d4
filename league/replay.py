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
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from league.commands import add_source, connected, guarded, value_of
from league.kinds import Kind, distribution, kind_of
from league.overview import record_of
from league.ratings import Skills
from league.state import Event, LeagueState
from league.store import Store
from warren.errors import LeagueError, MatchmakingError

Entries = Iterable[tuple[str, Event]]


def fold(entries: Entries, skills: Skills | None = None) -> LeagueState:
    """The league after these events, (id, event) oldest first; `skills` takes in the results as well."""
    state = LeagueState()
    for _, event in entries:
        if skills is not None and event["event"] == "ended" and event["as"] == "counted":
            match = state.matches[event["match"]]
            skills.record(match.home, match.away, event["outcomes"])
        state.apply(event)
    return state


@dataclass
class Comparison:
    """How another matchmaker would have chosen for one player, over its matches in the history."""

    matches: int = 0
    without_opponent: int = 0  # matches for which the other one had nobody
    played: dict[str, int] = field(default_factory=dict)  # opponents as they were
    expected: dict[str, float] = field(default_factory=dict)  # opponents as the other would have met them
    likelihood: float = 0.0  # mean probability it gave to who was met

    @property
    def distance(self) -> float:
        """Total variation between the two, in [0, 1]: the share of matches that would have gone elsewhere."""
        names = self.played.keys() | self.expected.keys()
        total = max(1, self.matches - self.without_opponent)
        return sum(abs(self.played.get(name, 0) - self.expected.get(name, 0.0)) for name in names) / (2 * total)


def through(entries: Entries, kind: Kind, players: Iterable[str] | None = None) -> dict[str, Comparison]:
    """What `kind` would have done at each match of each learning player (or of `players`), by player."""
    state, found = LeagueState(), dict[str, Comparison]()
    wanted = None if players is None else set(players)
    for _, event in entries:
        if event["event"] == "issued" and event["branch"] != "asked":
            home = event["home"]
            if wanted is None or home in wanted:
                _compare(found.setdefault(home, Comparison()), state, kind, home, event["away"])
        state.apply(event)
    for comparison in found.values():
        comparison.likelihood /= max(1, comparison.matches - comparison.without_opponent)
    return found


def _compare(comparison: Comparison, state: LeagueState, kind: Kind, home: str, away: str) -> None:
    comparison.matches += 1
    try:
        probabilities = distribution(kind, state, state.players[home])
    except MatchmakingError:
        comparison.without_opponent += 1
        return
    comparison.played[away] = comparison.played.get(away, 0) + 1
    comparison.likelihood += float(probabilities[state.players[away].slot])
    for slot in np.flatnonzero(probabilities):
        name = state.roster.by_slot[int(slot)].name
        comparison.expected[name] = comparison.expected.get(name, 0.0) + float(probabilities[slot])


def read_file(path: Path) -> Iterator[tuple[str, Event]]:
    """(id, event) of a saved stream, one JSON object a line; a last line cut off by a crash is left out."""
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                if line.endswith("\n"):
                    raise LeagueError(f"{path}, line {number} is no JSON; restore the file from a backup") from None
                return
            yield entry["id"], entry["fields"]


def until_id(text: str) -> str:
    """The last event id of a moment: an id, ms of Unix time, or a date and time (UTC where it names no zone)."""
    if text.replace("-", "", 1).isdigit() and len(text.partition("-")[0]) > 8:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LeagueError(f"{text!r} is no moment; write an event id, ms, or 2026-05-04T12:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return str(int(moment.timestamp() * 1000))


def before(entries: Entries, until: str | None) -> Iterator[tuple[str, Event]]:
    """Those up to the event `until`, all of its millisecond where it names no number within."""
    if until is None:
        yield from entries
        return
    last = _order(until if "-" in until else f"{until}-{2**64 - 1}")
    for entry, event in entries:
        if _order(entry) > last:
            return
        yield entry, event


def _order(entry: str) -> tuple[int, int]:
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number)


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


if __name__ == "__main__":
    sys.exit(main())
