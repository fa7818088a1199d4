"""A league in one process's memory: for programs of a single process, and for tests.

    league = MemoryLeague(Settings(), seed=1)
    league.add_player("main", "main_agent")
    match = league.request("main")                # names both players
    league.report(match, "wld")
    period = league.open_period("main"); ...; decision = league.close_period("main", steps, version)

Its rules are `decide`, and events are folded as in a replay; the scripts on Redis do the same. `on_event` receives
every event, so that the league can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from league.matchmaking import Decision, choose_all, kind_of
from league.matchmaking.view import ModelRef, Player
from league.rules.hyperparameters import Hyperparameters
from league.rules.settings import Settings
from league.state.commands import Abort, Add, Command, Count, Issue, TakeSnapshot
from league.state.decide import decide
from league.state.fields import to_json
from league.state.issued import issued
from league.state.league_state import Event, LeagueState, Match
from league.state.periods import LearningPeriod, Periods
from league.state.records import Progress
from warren.errors import MatchmakingError

HERE = "local"  # the holder of matches and periods
NEVER = 2**53  # ms; matches in one process have no lease


class MemoryLeague:
    """Implements league.state.league.League; `state` is the matchmakers' view. Its clock, `now` in ms, stands still."""

    def __init__(
        self, settings: Settings | None = None, seed: int = 0, on_event: Callable[[Event], None] | None = None
    ) -> None:
        self.state, self.now = LeagueState(), 0
        self.rng = np.random.default_rng(seed)
        self._on_event = on_event
        self._matches = 0
        self._periods = Periods(self)
        self._happened({"event": "created", **(settings or Settings()).to_fields()})

    def execute(self, command: Command) -> list[str]:
        """Carry out a command and return its answer."""
        events, answer = decide(self.state, command, self.now)
        for event in events:
            self._happened(event)
        return answer

    def view(self, home: str | None = None) -> LeagueState:
        """Return the league as it is."""
        return self.state

    def progress_of(self, name: str) -> Progress:
        """Return a player's progress."""
        return self.state.progress[self.state.roster[name].name]

    def add_player(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Any] | None = None,
        *,
        model: ModelRef | None = None,
        frozen: bool = False,
        rules: Mapping[str, Any] | None = None,
    ) -> Player:
        """Add and return a player, with hyperparameters drawn by its `rules`. Raises ConfigurationError."""
        kind_of(kind, config)
        drawn = to_json(Hyperparameters(rules or {}).initial(self.rng))
        given = to_json(dict(config or {})), str(model or ""), "", str(int(frozen)), to_json(dict(rules or {}))
        self.execute(Add(name, kind, *given, drawn, HERE))
        return self.state.players[name]

    def snapshot(self, name: str, version: int) -> Player:
        """Add and return a frozen copy of a learning player, as it is at `version`."""
        model = str(ModelRef(name, version))
        self.execute(TakeSnapshot(name, model, HERE))
        return self.state.roster[model]

    def request(self, home: str, opponents: int = 1) -> Match:
        """Issue the next match of `home`: its kind chooses the opponents. Raises MatchmakingError if there is none, and
        other errors as `issued` does.
        """
        me = self.state.roster[home]
        first, *others = choose_all(kind_of(me.kind, me.config), self.state, me, self.rng, opponents)
        self._matches += 1
        match = f"{self._matches:x}"
        rest = tuple(choice.opponent.name for choice in others)
        answer = self.execute(Issue(match, home, first.opponent.name, first.branch, HERE, NEVER, rest))
        made = issued(match, home, HERE, answer)
        if made is None:
            raise MatchmakingError(f"player {home!r}: its kind {me.kind} chose {answer[1]!r}, which was removed")
        return made

    def report(self, match: Match, outcomes: str) -> str:
        """Count the outcomes of a match, as in commands.Count; return "counted", or "aborted" by a rule."""
        return self.execute(Count(match.id, outcomes, HERE))[0]

    def abort(self, match: Match, reason: str = "actor") -> None:
        """End a match without a result."""
        self.execute(Abort(match.id, reason, HERE))

    def open_period(self, name: str) -> dict[str, Any]:
        """Begin the next learning period of a player; return the hyperparameters to train with at its start."""
        return self._periods.open(name, HERE, NEVER / 1000.0).at()

    def hyperparameters(self, name: str, progress: float = 0.0) -> dict[str, Any]:
        """Return the hyperparameters that a player trains with, `progress` in [0, 1] through its period."""
        return self._period(name).at(progress)

    def progress(self, name: str, steps: int) -> None:
        """Report how many environment steps a player has made in all."""
        self._periods.progress(self._period(name), steps, NEVER / 1000.0)

    def close_period(
        self,
        name: str,
        steps: int,
        version: int,
        weights_of: Callable[[str], ModelRef | None] = lambda player: None,
        run: float | None = None,
        snapshots: Sequence[ModelRef] = (),
    ) -> Decision:
        """End a period by a snapshot first, then a reset or an exploit, as the player's kind decides; return that.

        `weights_of` names the newest weights of a player that is taken over; for this, `run` and `snapshots` see
        Periods.close.
        """
        held = self._period(name)
        return self._periods.close(held, steps, version, weights_of=weights_of, run=run, snapshots=snapshots).decision

    def _period(self, name: str) -> LearningPeriod:
        player, progress = self.state.roster[name], self.state.progress[name]
        held = name, max(1, progress.period), HERE, None, progress.steps, player.generation
        return LearningPeriod(*held, player.rules, player.hyperparameters, NEVER)

    def _happened(self, event: Event) -> None:
        self.state.apply(event)
        if self._on_event is not None:
            self._on_event(event)
