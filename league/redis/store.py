"""The league in Redis: players, matches and results. Any number of league workers share it; none of them holds state.

    store = Store(redis, "warren.my-run:league:")
    store.create(Settings())
    store.add_player("main", "main_agent")
    match = store.request("main", holder="actor-3", lease=60.0)   # names both players; leased
    store.report(match.id, "w", by="actor-3")                  # counted once, even if it is sent several times

Every change is one script (league/redis/lua), which also writes its event to the stream `PREFIXevents`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from league.matchmaking import choose_all, kind_of
from league.matchmaking.view import ModelRef, Player, Roster
from league.redis.event_stream import EventStream
from league.redis.reader import RedisView, load
from league.redis.scripts import Scripts, texts
from league.redis.texts import pairs, text
from league.redis.thread_random import ThreadRandom
from league.redis.views import Views
from league.rules.hyperparameters import Hyperparameters
from league.rules.names import ALLOWED, NAME
from league.rules.settings import Settings
from league.rules.win_rates import OUTCOMES
from league.state.commands import Abort, Add, Change, Command, Count, Expire, Extend, Issue, TakeSnapshot
from league.state.fields import milliseconds, to_field, to_json
from league.state.issued import issued
from league.state.league_state import LeagueState, Match
from league.state.records import Progress, match_from, progress_from
from warren.errors import (
    ConfigurationError,
    LeagueError,
    MatchmakingError,
    PlayerError,
)

EXPIRED_AT_ONCE = 50  # matches freed with each request: a backlog shrinks quickly, and no request waits long
ATTEMPTS = 5  # to choose anew after the opponent was removed meanwhile


class Report(NamedTuple):
    """The answer to a result: `status` is "counted", "aborted" (by a rule) or "refused"; `reason` says why."""

    status: str
    reason: str = ""


def check_outcomes(match: str, outcomes: str) -> None:
    """Raise LeagueError unless `outcomes` is one or more of "w", "d" and "l", or of places from 0 to 9."""
    if not outcomes or (set(outcomes) - set(OUTCOMES) and not (outcomes.isascii() and outcomes.isdigit())):
        raise LeagueError(f"outcomes {outcomes!r} of match {match!r}: write one or more of {', '.join(OUTCOMES)}")


class Store(EventStream):
    """One league. Keys begin with `prefix`. Safe to use from any thread; times are those of the Redis server.

    `view_age` is for how many s a view may serve further requests of the same player. 0 reads the payoff anew for each
    request. 0.1 saves a busy league worker one of two round trips, but its view lacks the last results. An issued match
    is always checked against the league as it is.
    """

    def __init__(self, redis: Any, prefix: str, seed: int | None = None, view_age: float = 0.0) -> None:
        super().__init__(redis, prefix)
        self.scripts = Scripts(redis, prefix)
        self._views = Views(redis, prefix, view_age)
        self._random = ThreadRandom(seed)

    # Commands (league.state.commands), each one step.

    def execute(self, command: Command) -> list[str]:
        """Carry out a command; return its answer. Raises LeagueAbsent while Redis holds no league that is ready."""
        return texts(self.scripts(command.script, *command.arguments()))

    def execute_all(self, *commands: Command) -> list[list[str]]:
        """Carry out several commands in one round trip, each a step of its own."""
        calls = [(command.script, *command.arguments()) for command in commands]
        return [texts(answer) for answer in self.scripts.together(*calls)]

    # The league and its players.

    def create(self, settings: Settings | None = None, ready: bool = True) -> Settings:
        """Create the league, or join an existing one. Raises ConfigurationError if that one has other settings.

        With `ready=False` matches can be asked for only after `open_up`, so that players can be added first.
        """
        wanted = settings or Settings()
        given = [item for pair in wanted.to_fields().items() for item in pair]
        found = Settings.from_fields(pairs(self.scripts("create", *given)))
        if settings is not None and found != wanted:
            raise ConfigurationError(found.differences(wanted))
        if ready:
            self.open_up()
        return found

    def open_up(self) -> None:
        """Let others use the league, once its first players are added."""
        self.redis.set(f"{self.prefix}ready", 1)

    def exists(self) -> bool:
        """Return True if Redis holds a league, ready or not."""
        return bool(self.redis.exists(f"{self.prefix}settings"))

    def is_ready(self) -> bool:
        """Return True once the league is ready; until then every call that changes it raises LeagueAbsent."""
        return bool(self.redis.exists(f"{self.prefix}ready"))

    def add_player(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Any] | None = None,
        *,
        frozen: bool = False,
        model: ModelRef | None = None,
        initial: ModelRef | None = None,
        rules: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> bool:
        """Add a player with hyperparameters drawn by its `rules`; return False if it exists already.

        Raises ConfigurationError for an unknown kind, option or rule, PlayerError for an invalid name, or for a frozen
        player without a model.
        """
        if not NAME.fullmatch(name):
            raise PlayerError(f"player name {name!r} is not {ALLOWED}; choose another")
        kind_of(kind, config)
        if frozen and model is None:
            raise PlayerError(f"player {name!r} is frozen and has no model; name one, as in {name}@1")
        drawn = Hyperparameters(rules or {}).initial(self.rng)
        encoded = kind, to_json(config or {}), str(model or ""), str(initial or ""), str(int(frozen))
        return self.execute(Add(name, *encoded, to_json(rules or {}), to_json(drawn), by))[0] == "added"

    def change(self, name: str, by: str = "", **fields: Any) -> None:
        """Set fields of a player: paused, frozen, removed, kind, config, rules, hyperparameters, model, initial.

        Raises PlayerError if the player does not exist, ConfigurationError for what its kind does not accept, and
        LeagueError for any other field.
        """
        player = self.player(name)
        # Only what changes: a process that does not know a player's kind can still pause or remove the player.
        if {"kind", "config"} & fields.keys():
            kind_of(fields.get("kind", player.kind), fields.get("config", player.config))
        Hyperparameters(fields.get("rules", {}))
        allowed = {"paused", "frozen", "removed", "kind", "config", "rules", "hyperparameters", "model", "initial"}
        if wrong := sorted(fields.keys() - allowed):
            raise LeagueError(f"fields {', '.join(wrong)} of a player cannot be set; {', '.join(sorted(allowed))} can")
        changes = tuple(item for field, value in fields.items() for item in (field, to_field(value)))
        if self.execute(Change(name, by, changes))[0] == "unknown":
            raise PlayerError(f"player {name!r} does not exist; it was removed meanwhile")

    def freeze(self, name: str, model: ModelRef, by: str = "") -> None:
        """Stop a player's learning: from now on it plays `model`, which the pool should hold frozen."""
        self.change(name, by, model=model, frozen=True)

    def pause(self, name: str, by: str = "") -> None:
        """Stop giving a player matches and learning periods; others still play against it."""
        self.change(name, by, paused=True)

    def resume(self, name: str, by: str = "") -> None:
        """Undo `pause`."""
        self.change(name, by, paused=False)

    def remove(self, name: str, by: str = "") -> None:
        """Take a player out for good; its history stays, and results still to come are dropped and counted."""
        self.change(name, by, removed=True)

    def snapshot(self, name: str, version: int, by: str = "") -> Player:
        """Add a frozen copy of a learning player, as it is at `version`, unless there is one; return it."""
        model = ModelRef(name, version)
        answer = self.execute(TakeSnapshot(name, str(model), by))[0]
        if answer == "unknown":
            self.player(name)
        if answer == "frozen":
            raise PlayerError(f"player {name!r} is frozen: it is its own snapshot")
        return self.player(str(model))

    def player(self, name: str) -> Player:
        """Return a player as it is now. Raises PlayerError, which lists similar names."""
        return self.view().roster[name]

    def progress_of(self, name: str) -> Progress:
        """Return a player's progress. Raises PlayerError, which lists similar names, if it does not exist."""
        fields = self.redis.hgetall(f"{self.prefix}player:{self.player(name).name}")
        return progress_from(pairs(fields))

    @property
    def last_roster(self) -> Roster:
        """Return the roster that this process saw last, without asking Redis."""
        return self._views.last_roster

    # Matches.

    def view(self, home: str | None = None) -> RedisView:
        """Return the league as it is now; see `Views.now`."""
        return self._views.now(home)

    def request(self, home: str, holder: str, lease: float, match: str | None = None, opponents: int = 1) -> Match:
        """Issue the next match of `home`: its kind chooses the opponents; `holder` has `lease` s to report or extend.

        `match` makes a repeated request idempotent: the same id gets the same match. Raises PlayerError if `home`
        does not exist, PlayerUnavailable while it is paused, MatchmakingError if it has no opponent.
        """
        match = match or secrets.token_hex(8)
        for attempt in range(ATTEMPTS):
            view = self._views.recent(home) if attempt == 0 else self.view(home)
            found = self._issue(self._chosen(view, match, home, holder, lease, opponents))
            if found is not None:
                return found
        raise MatchmakingError(f"player {home!r}: {ATTEMPTS} opponents in turn were removed while chosen; ask again")

    def request_many(
        self,
        homes: Sequence[str],
        holder: str,
        lease: float,
        matches: Sequence[str] | None = None,
        opponents: int = 1,
    ) -> list[Match]:
        """Issue a match for each of `homes`, with a view for each different player and one round trip for all matches.

        `matches` are their ids, as in `request`. Raises as `request` does for the first of `homes` that cannot have a
        match; matches issued with it are returned when the same ids are asked for again, and otherwise expire.
        """
        ids = matches or [secrets.token_hex(8) for _ in homes]
        views = {home: self._views.recent(home) for home in dict.fromkeys(homes)}
        calls = [
            self._chosen(views[home], match, home, holder, lease, opponents)
            for home, match in zip(homes, ids, strict=True)
        ]
        answers = self.execute_all(Expire(EXPIRED_AT_ONCE), *calls)[1:]
        return [
            issued(match, home, holder, answer) or self.request(home, holder, lease, match, opponents)
            for home, match, answer in zip(homes, ids, answers, strict=True)
        ]

    def report_many(self, results: Sequence[tuple[str, str]], by: str = "") -> list[Report]:
        """Count the results (match, outcomes) in one round trip; each is as safe to repeat as in `report`."""
        for match, outcomes in results:
            check_outcomes(match, outcomes)
        if not results:
            return []
        answers = self.execute_all(*(Count(match, outcomes, by) for match, outcomes in results))
        return [Report(*answer) for answer in answers]

    def issue(self, home: str, away: str, holder: str, lease: float, match: str | None = None) -> Match:
        """Issue a match between two players by name, for an evaluation. Raises PlayerError if either is gone."""
        found = self._issue(Issue(match or secrets.token_hex(8), home, away, "asked", holder, milliseconds(lease)))
        if found is None:
            raise PlayerError(f"players {home!r} and {away!r} cannot play: one does not exist or was removed")
        return found

    def _chosen(self, view: RedisView, match: str, home: str, holder: str, lease: float, opponents: int) -> Issue:
        me = view.roster[home]
        first, *others = choose_all(kind_of(me.kind, me.config), view, me, self.rng, opponents)
        rest = tuple(choice.opponent.name for choice in others)
        return Issue(match, home, first.opponent.name, first.branch, holder, milliseconds(lease), rest)

    def _issue(self, issue: Issue) -> Match | None:
        return issued(issue.match, issue.home, issue.holder, self.execute_all(Expire(EXPIRED_AT_ONCE), issue)[1])

    def report(self, match: str, outcomes: str, by: str = "") -> Report:
        """Count the games of a match: "w", "d" or "l" of its home player, oldest first, or places. Safe to repeat.

        Raises LeagueError for any other outcome; the match then stays open.
        """
        check_outcomes(match, outcomes)
        return Report(*self.execute(Count(match, outcomes, by)))

    def abort(self, match: str, reason: str = "actor", by: str = "") -> Report:
        """End a match without a result, as an actor does that cannot get a model. Safe to repeat."""
        return Report(*self.execute(Abort(match, reason, by)))

    def extend(self, match: str, lease: float) -> bool:
        """Hold an open match for `lease` s from now; return False if it is no longer open."""
        return self.execute(Extend(match, milliseconds(lease)))[0] == "1"

    def expire(self, most: int = 1000) -> int:
        """Free at most `most` matches whose lease has passed; return the number freed."""
        return int(self.execute(Expire(most))[0])

    def open_matches(self) -> list[Match]:
        """Return the open matches, the next to expire first."""
        matches = [text(match) for match in self.redis.zrange(f"{self.prefix}leases", 0, -1)]
        with self.redis.pipeline(transaction=False) as pipeline:
            for match in matches:
                pipeline.hgetall(f"{self.prefix}match:{match}")
            found = pipeline.execute()
        return [match_from(match, pairs(fields)) for match, fields in zip(matches, found, strict=True) if fields]

    # The whole league.

    def load(self) -> LeagueState:
        """Return the whole league at one moment, for analyses, snapshots and comparison with a replay."""
        return load(self.scripts)

    def counters(self) -> dict[str, int]:
        """Return the counts of matches issued, counted, expired and aborted, of games, and of each reason."""
        return {name: int(count) for name, count in pairs(self.redis.hgetall(f"{self.prefix}counters")).items()}

    @property
    def rng(self) -> np.random.Generator:
        """Return this thread's own random numbers."""
        return self._random.generator
