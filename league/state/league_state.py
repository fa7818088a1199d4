"""A whole league in memory, folded from its events: the result of a replay, and the input of tests and analyses.

    state = LeagueState()
    for event in events:
        state.apply(event)

The scripts in league/redis/lua do the same steps on Redis, and tests check that both are equal. Everything here follows
from the events alone: no clock, no random numbers.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode, b85decode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from league.empirical_game.returns import Returns
from league.matchmaking.view import Player, Roster
from league.rules.plateau import Look, since
from league.rules.settings import Settings
from league.rules.win_rates import Payoff, Slots, pairs_of
from league.state.ended_matches import EndedMatches
from league.state.fields import UNFIT, to_json, unfit
from league.state.records import (
    Match,
    Progress,
    match_fields,
    match_from,
    model_of,
    others_from,
    player_fields,
    player_from,
    progress_fields,
    progress_from,
)
from warren.errors import LeagueError

__all__ = ["Event", "LeagueState", "Match", "Progress", "model_of"]

Event = Mapping[str, str]  # "event" names what happened; the rest are its fields, as text


@dataclass
class LeagueState:
    """Implements league.matchmaking.view.View. Equal to another if every part is, payoff and ratings to the bit."""

    settings: Settings = field(default_factory=Settings)
    players: dict[str, Player] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    ratings: list[float] = field(default_factory=list)  # Elo by slot
    matches: dict[str, Match] = field(default_factory=dict)  # open ones by id
    counters: Counter[str] = field(default_factory=Counter)
    payoff: Payoff = field(default_factory=Payoff)
    roster_version: int = 0
    last_event: str = ""  # id of the last event in it, if it was read from Redis
    empirical_game: Returns = field(default_factory=Returns)  # the evaluators'; neither in the stream nor compared
    looked: dict[str, list[Look]] = field(default_factory=dict)  # at learning players; also neither
    ended: EndedMatches = field(default_factory=EndedMatches)  # the latest; not in a checkpoint
    _roster: Roster | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeagueState) and not self.differences(other)

    __hash__ = None  # type: ignore[assignment]

    def differences(self, other: LeagueState) -> list[str]:
        """Return the parts in which two leagues differ, each with a first example; [] if they are equal."""
        found = []
        for name in ("settings", "players", "progress", "ratings", "matches", "counters"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                found.append(f"{name}: {_first_difference(mine, theirs)}")
        if self.payoff.cells.shape != other.payoff.cells.shape:
            found.append(f"payoff: {self.payoff.slots} and {other.payoff.slots} slots")
        elif not np.array_equal(self.payoff.cells, other.payoff.cells):
            where = np.argwhere((self.payoff.cells != other.payoff.cells).any(axis=-1))[0]
            found.append(f"payoff: cell {tuple(map(int, where))}")
        return found

    # The view of matchmakers.

    @property
    def roster(self) -> Roster:
        """Return the players of the league."""
        if self._roster is None or self._roster.version != self.roster_version:
            self._roster = Roster(self.players.values(), self.roster_version)
        return self._roster

    @property
    def counted(self) -> int:
        """Return the number of matches counted so far."""
        return self.counters["counted"]

    def win_rates(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Return win rates of `home` against each of `away`, (n,)."""
        return self.payoff.win_rates(home, away)

    def games(self, home: int, away: Slots) -> NDArray[np.float64]:
        """Return decayed games of `home` against each of `away`, (n,)."""
        return self.payoff.games(home, away)

    def matrix(self, slots: Slots) -> NDArray[np.float64]:
        """Return win rates of each of `slots` (rows) against each (columns), (n, n)."""
        return self.payoff.matrix(slots)

    def elo(self, slots: Slots) -> NDArray[np.float64]:
        """Return Elo ratings, (n,)."""
        return np.array(self.ratings)[slots]

    def looks(self, me: Player) -> list[Look]:
        """Return evaluators' looks at a learning player since its last snapshot or reset, oldest first."""
        return since(self.looked.get(me.name, []), me.generation, self.progress[me.name].snapshot_steps)

    # Events.

    def apply(self, event: Event) -> None:
        """Apply one event. Raises LeagueError for one that this version does not know, or that does not fit here."""
        step = getattr(self, f"_on_{event['event']}", None)
        if step is None:
            raise LeagueError(f"the stream holds an event {event['event']!r} that this version does not know; upgrade")
        try:
            step(event)
        except UNFIT as error:
            raise unfit(event, error) from None

    def checkpoint(self) -> str:
        """Return the league, except for ended matches, as text: the field `league` of an event "checkpoint"."""
        cells = zlib.compress(np.ascontiguousarray(self.payoff.cells, "<f8").tobytes(), 1)
        return to_json(
            {
                "settings": self.settings.to_fields(),
                "players": [
                    [name, player_fields(player), progress_fields(self.progress[name])]
                    for name, player in self.players.items()
                ],
                "matches": [[name, match_fields(match)] for name, match in self.matches.items()],
                "ratings": self.ratings,
                "counters": dict(self.counters),
                "roster_version": self.roster_version,
                # Base 64, as Python's base 85 is slow, and nothing else runs meanwhile.
                "payoff64": b64encode(cells).decode(),
            }
        )

    def _on_checkpoint(self, event: Event) -> None:
        """Replace the whole state by that of the checkpoint, which stands for all events before it."""
        given = json.loads(event["league"])
        settings = Settings.from_fields(given["settings"])
        payoff, players = Payoff(settings.decay), len(given["players"])
        payoff.grow(players)
        text = b64decode(given["payoff64"]) if "payoff64" in given else b85decode(given["payoff"])  # older leagues'
        cells = np.frombuffer(zlib.decompress(text), "<f8")
        payoff.cells[:] = cells.reshape(payoff.cells.shape)
        vars(self).update(
            vars(
                LeagueState(
                    settings=settings,
                    players={name: player_from(name, player) for name, player, _ in given["players"]},
                    progress={name: progress_from(progress) for name, _, progress in given["players"]},
                    ratings=given["ratings"],
                    matches={name: match_from(name, match) for name, match in given["matches"]},
                    counters=Counter(given["counters"]),
                    payoff=payoff,
                    roster_version=given["roster_version"],
                    empirical_game=self.empirical_game,
                    looked=self.looked,
                )
            )
        )

    def _on_created(self, event: Event) -> None:
        self.settings = Settings.from_fields(event)
        self.payoff = Payoff(self.settings.decay)

    def _on_added(self, event: Event) -> None:
        name, slot = event["name"], _next_slot(event, len(self.players))
        parent = event["parent"] or None
        self.players[name] = Player(
            name=name,
            slot=slot,
            kind=event["kind"],
            config=json.loads(event["config"]),
            parent=parent,
            model=model_of(event["model"]),
            initial=model_of(event["initial"]),
            frozen=event["frozen"] == "1",
            rules=json.loads(event["rules"]),
            hyperparameters=json.loads(event["hyperparameters"]),
        )
        self.progress[name] = Progress()
        self.ratings.append(float(event["elo"]))
        self.payoff.grow(slot + 1)
        if parent is not None:
            self.progress[parent].snapshot_steps = self.progress[parent].steps
            if self.settings.snapshots_inherit:
                self.payoff.copy_player(self.players[parent].slot, slot)
        self.roster_version += 1

    def _on_changed(self, event: Event) -> None:
        name, changed = event["name"], event["field"]
        text = event["value"]
        value: Any = text
        if changed in ("frozen", "paused", "removed"):
            value = text == "1"
        elif changed in ("config", "rules", "hyperparameters"):
            value = json.loads(text)
        elif changed in ("model", "initial"):
            value = model_of(text)
        self.players[name] = replace(self.players[name], **{changed: value})
        self.roster_version += 1

    def _on_issued(self, event: Event) -> None:
        self.matches[event["match"]] = Match(
            event["match"],
            event["home"],
            event["away"],
            event["branch"],
            event["holder"],
            int(event["home_generation"]),
            int(event["away_generation"]),
            self.players[event["home"]].frozen,
            self.players[event["away"]].frozen,
            int(event["deadline"]),
            *(_others(event, self.players) if event.get("others") else ()),
        )
        self.counters["issued"] += 1

    def _on_extended(self, event: Event) -> None:
        match = self._open(event["match"])
        self.matches[match.id] = replace(match, deadline=int(event["deadline"]))

    def _on_ended(self, event: Event) -> None:
        match = self._open(event["match"])
        del self.matches[match.id]
        self.ended.add(match.id, event["as"])
        self.counters[event["as"]] += 1
        if event["as"] == "aborted":
            self.counters[f"aborted:{event['reason']}"] += 1
        if event["as"] == "counted":
            slots, outcomes = [self.players[name].slot for name in match.names], event["outcomes"]
            for one, other, between in pairs_of(outcomes, len(slots)):
                self.payoff.record(slots[one], slots[other], between)
            others = event["other_elos"].split(",") if match.others else ()
            elos = event["home_elo"], event["away_elo"], *others
            for slot, elo in zip(slots, elos, strict=True):
                self.ratings[slot] = float(elo)
            self.counters["games"] += len(outcomes) // (len(slots) if match.others else 1)

    def _open(self, match: str) -> Match:
        if match not in self.matches:
            why = "it ended before" if match in self.ended else "it was never issued"
            raise LeagueError(
                f"match {match!r} is not open ({why}): these events are not one league's; two servers wrote them, or a "
                "crash took some back. Begin with a copy from before, or cut the file before this event"
            )
        return self.matches[match]

    def _on_refused(self, event: Event) -> None:
        self.counters[f"refused:{event['reason']}"] += 1

    def _on_period_opened(self, event: Event) -> None:
        progress = self.progress[event["player"]]
        progress.period, progress.is_open = int(event["number"]), True
        progress.learner, progress.deadline = event["learner"], int(event["deadline"])

    def _on_progressed(self, event: Event) -> None:
        progress = self.progress[event["player"]]
        progress.steps, progress.deadline = int(event["steps"]), int(event["deadline"])

    def _on_period_closed(self, event: Event) -> None:
        progress = self.progress[event["player"]]
        progress.steps = progress.closed_steps = int(event["steps"])
        progress.start = event["model"]
        progress.is_open, progress.learner, progress.deadline = False, "", 0
        progress.closed_as, progress.closed_snapshot = event.get("as", ""), event.get("snapshot") == "1"
        progress.closed_source, progress.closed_reason = event.get("source", ""), event["reason"]

    def _on_reset(self, event: Event) -> None:
        self._new_weights(event, self.settings.elo_initial)

    def _on_exploited(self, event: Event) -> None:
        name = event["player"]
        self.players[name] = replace(self.players[name], hyperparameters=json.loads(event["hyperparameters"]))
        self._new_weights(event, self.ratings[self.players[event["source"]].slot])

    def _new_weights(self, event: Event, elo: float) -> None:
        name = event["player"]
        player = self.players[name] = replace(self.players[name], generation=int(event["generation"]))
        self.progress[name].start = event["start"]
        self.payoff.clear(player.slot)
        self.ratings[player.slot] = elo
        self.roster_version += 1


def _next_slot(event: Event, players: int) -> int:
    if (slot := int(event["slot"])) != players:
        raise ValueError(f"player {event['name']} has slot {slot}, after {players} players")
    return slot


def _others(event: Event, players: Mapping[str, Player]) -> tuple[tuple[str, ...], tuple[int, ...], tuple[bool, ...]]:
    names, generations, _ = others_from(event.get("others", ""), event.get("other_generations", ""), "")
    return names, generations, tuple(players[name].frozen for name in names)


def _first_difference(one: object, other: object) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *other]:
            if one.get(key) != other.get(key):
                return f"{key!r} is {one.get(key)!r} here and {other.get(key)!r} there"
    return f"{one!r} here and {other!r} there"
