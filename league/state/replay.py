"""The league rebuilt from its stream to any moment, and another matchmaker's choices at each of its matches.

Through another matchmaker: at every match of the history, the other kind sees the league as it was at that moment and
says how likely it would have met each opponent. Results of matches that were never played are not made up.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import numpy as np

from league.matchmaking import KINDS, Kind, distribution
from league.rules.ratings import Skills
from league.state.fields import UNFIT, event_order, unfit
from league.state.league_state import Event, LeagueState
from warren import formats
from warren.errors import LeagueError, MatchmakingError, PlayerError, unknown_name
from warren.files import read_json

FORMAT = "format.json"  # in a league's folder: the release that wrote it, and its format
STREAM, HISTORY = "league.jsonl", "history"  # in a league's folder: the newest events, and segments of older ones

Entries = Iterable[tuple[str, Event]]


def fold(entries: Entries, skills: Skills | None = None) -> LeagueState:
    """Return the league after these events, (id, event) oldest first; add the results to `skills` too, if given."""
    state = LeagueState()
    for entry, event in entries:
        try:
            if skills is not None:
                follow(skills, state, event)
            state.apply(event)
        except LeagueError as error:
            raise LeagueError(f"event {entry}: {error}") from None
        except UNFIT as error:
            raise LeagueError(f"event {entry}: {unfit(event, error)}") from None
    return state


def follow(skills: Skills, state: LeagueState, event: Event) -> None:
    """Update `skills` by an event that is about to be applied to `state`.

    As with Elo, a snapshot begins with its parent's skill, a player that was reset begins with none, and one that takes
    over another's weights gets the other's skill.
    """
    match event["event"]:
        case "ended" if event["as"] == "counted" and (played := state.matches.get(event["match"])) is not None:
            if played.others:
                skills.record_placements(played.names, event["outcomes"])
            else:
                skills.record(played.home, played.away, event["outcomes"])
        case "added" if event["parent"]:
            skills.copy(event["parent"], event["name"])
        case "reset":
            skills.forget(event["player"])
        case "exploited":
            skills.copy(event["source"], event["player"])


@dataclass
class Comparison:
    """The choices of another matchmaker for one player, over its matches in the history."""

    matches: int = 0
    without_opponent: int = 0  # matches for which the other matchmaker had no opponent
    played: dict[str, int] = field(default_factory=dict)  # opponent -> number of matches played against it
    expected: dict[str, float] = field(default_factory=dict)  # opponent -> matches that the other one expects
    likelihood: float = 0.0  # mean probability that the other matchmaker gave to the opponent that was met

    @property
    def distance(self) -> float:
        """Return the total variation between the two, in [0, 1]: the share of matches whose opponent would differ."""
        names = self.played.keys() | self.expected.keys()
        total = max(1, self.matches - self.without_opponent)
        return sum(abs(self.played.get(name, 0) - self.expected.get(name, 0.0)) for name in names) / (2 * total)


def through(entries: Entries, kind: Kind, players: Iterable[str] | None = None) -> dict[str, Comparison]:
    """Compare the choices of `kind` at each match of each learning player (or of `players`); return player -> result.

    Raises LeagueError for a kind that chooses by data that the stream does not hold, PlayerError for an unknown player.
    """
    if kind.needs_returns:
        raise _by_returns()
    # A kind of a user's own that does not say so is told by what it reads.
    state = LeagueState(empirical_game=_NotInStream(), looked=_NotInStream())  # type: ignore[arg-type]
    found = dict[str, Comparison]()
    wanted = None if players is None else set(players)
    for _, event in entries:
        if event["event"] == "issued" and event["branch"] != "asked":
            home = event["home"]
            if wanted is None or home in wanted:
                _compare(found.setdefault(home, Comparison()), state, kind, home, event["away"])
        state.apply(event)
    if unknown := sorted(name for name in wanted or () if name not in state.roster):
        learning = ", ".join(sorted(player.name for player in state.roster if not player.frozen))
        where = f"in this league; learning there: {learning}"
        raise PlayerError(unknown_name("player", unknown[0], [player.name for player in state.roster], where))
    for comparison in found.values():
        comparison.likelihood /= max(1, comparison.matches - comparison.without_opponent)
    return found


def _by_returns() -> LeagueError:
    refused = ", ".join(name for name in KINDS if KINDS[name].needs_returns)
    return LeagueError(
        f"players of this kind (as {refused}) choose by the evaluators' returns, which are not part of the stream: no "
        "replay can say whom they would have met; name another kind"
    )


class _NotInStream:
    """The evaluators' returns and looks in a league that only the stream tells of: whatever reads them fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise _by_returns()


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


def read_folder(folder: Path) -> Iterator[tuple[str, Event]]:
    """Yield (id, event) of all that a league's folder keeps, oldest first: its segments, then the newest events."""
    last = ""
    for path in [*segments(folder), folder / STREAM]:
        for entry, event in read_file(path):
            # A checkpoint at the last event adds nothing; a later one stands for events that the folder lacks.
            if event["event"] != "checkpoint" or entry != last:
                yield entry, event
            last = entry


def segments(folder: Path) -> list[Path]:
    """Return the files of older events, the oldest first."""
    return sorted((folder / HISTORY).glob("*.jsonl.gz"), key=lambda path: event_order(path.name.partition(".")[0]))


def read_file(path: Path) -> Iterator[tuple[str, Event]]:
    """Yield (id, event) of a saved stream, one JSON object per line; a last line cut off by a crash is left out.

    Raises LeagueError for a damaged file or line, and in a folder that a newer release wrote.
    """
    folder = path.parent.parent if path.suffix == ".gz" else path.parent
    if refusal := formats.refusal(f"league {folder}", read_json(folder / FORMAT), formats.LEAGUE):
        raise LeagueError(refusal)
    try:
        packed = path.suffix == ".gz"
        with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    entry = json.loads(line)
                    found: tuple[str, Event] = entry["id"], entry["fields"]
                    found[1]["event"]
                except json.JSONDecodeError:
                    if line.endswith("\n"):
                        raise LeagueError(
                            f"{path}, line {number} is not JSON; restore the file from a backup"
                        ) from None
                    return
                except (KeyError, TypeError):
                    raise LeagueError(f"{path}, line {number} is no event; restore the file from a backup") from None
                yield found
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise LeagueError(f"{path} is damaged ({error}); restore the file from a backup") from None


def until_id(text: str) -> str:
    """Return the id of the last event at a moment: an id, ms of Unix time, or a date and time (UTC without a zone)."""
    if text.replace("-", "", 1).isdigit() and len(text.partition("-")[0]) > 8:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LeagueError(f"{text!r} is not a moment; write an event id, ms, or 2026-05-04T12:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return str(int(moment.timestamp() * 1000))


def before(entries: Entries, until: str | None) -> Iterator[tuple[str, Event]]:
    """Yield the entries up to the event `until`; to the end of its millisecond if it has no number within."""
    if until is None:
        yield from entries
        return
    last = event_order(until if "-" in until else f"{until}-{2**64 - 1}")
    for entry, event in entries:
        if event_order(entry) > last:
            if event["event"] == "checkpoint":
                raise LeagueError(f"the history that is kept begins with {entry}, after {until}; name a later moment")
            return
        yield entry, event
