"""A league in this process alone, with the calls of league.redis: for one process, and for tests.

    league = MemoryLeague(Settings(), seed=1)
    league.add_player("main", "main_agent")
    match = league.request("main")                # who plays whom
    league.report(match, "wld")
    period = league.open_period("main"); ...; outcome = league.close_period("main", steps, version)

It makes the events that the scripts on Redis would make and folds them as a replay does, so both are one league: what
happens here is told by `on_event`, and can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from league.matchmaking import Decision, choose, kind_of
from league.matchmaking.view import ModelRef, Player
from league.rules.hyperparameters import Hyperparameters
from league.rules.ratings import elo_update
from league.rules.settings import DROP, Settings
from league.state.fields import to_json
from league.state.league_state import Event, LeagueState, Match

HERE = "local"  # who holds matches and periods
NEVER = str(2**53)  # ms; matches in one process are not leased


class MemoryLeague:
    """Players, matches, learning periods; `state` is the view that matchmakers see."""

    def __init__(
        self, settings: Settings | None = None, seed: int = 0, on_event: Callable[[Event], None] | None = None
    ) -> None:
        self.state = LeagueState()
        self.rng = np.random.default_rng(seed)
        self._on_event = on_event
        self._matches = 0
        self._frozen_at_issue: dict[str, tuple[bool, bool]] = {}
        self._happened("created", **(settings or Settings()).to_fields())

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
        """A new player, with hyperparameters drawn by its `rules`. Raises ConfigurationError for what is wrong."""
        kind_of(kind, config)
        drawn = Hyperparameters(rules or {}).initial(self.rng)
        elo = self.state.settings.elo_initial
        return self._add(name, kind, config or {}, "", str(model or ""), frozen, rules or {}, drawn, elo)

    def snapshot(self, name: str, version: int) -> Player:
        """A frozen copy of a learning player, as it is at `version`."""
        player, model = self.state.roster[name], str(ModelRef(name, version))
        if model in self.state.players:
            return self.state.players[model]
        copied = (player.kind, player.config, name, model, True, player.rules, player.hyperparameters)
        return self._add(model, *copied, self.state.ratings[player.slot])

    def request(self, home: str) -> Match:
        """The next match of `home`: its kind chooses the opponent. Raises MatchmakingError when there is none."""
        me = self.state.roster[home]
        choice = choose(kind_of(me.kind, me.config), self.state, me, self.rng)
        self._matches += 1
        match, away = f"{self._matches:x}", choice.opponent
        self._happened(
            "issued",
            match=match,
            home=home,
            away=away.name,
            branch=choice.branch,
            holder=HERE,
            home_generation=str(me.generation),
            away_generation=str(away.generation),
            deadline=NEVER,
        )
        self._frozen_at_issue[match] = (me.frozen, away.frozen)
        return self.state.matches[match]

    def report(self, match: Match, outcomes: str) -> str:
        """Count results of a match, "w", "d" or "l" of its home player: "counted", or "aborted" by a rule."""
        players, settings = self.state.players, self.state.settings
        home, away = players[match.home], players[match.away]
        before = self._frozen_at_issue.pop(match.match)
        reasons = {
            "removed": home.removed or away.removed,
            "reset": settings.on_reset == DROP
            and (home.generation, away.generation) != (match.home_generation, match.away_generation),
            "frozen": settings.on_frozen == DROP and (home.frozen, away.frozen) != before,
        }
        ended = {"match": match.match, "by": HERE}
        for reason, holds in reasons.items():
            if holds:
                self._happened("ended", **ended, reason=reason, **{"as": "aborted"})
                return "aborted"
        rating, rival = self.state.ratings[home.slot], self.state.ratings[away.slot]
        if home.slot != away.slot:
            rating, rival = elo_update(rating, rival, outcomes, settings.elo_k)
        elo = {"home_elo": repr(rating), "away_elo": repr(rival)}
        self._happened("ended", **ended, outcomes=outcomes, **elo, **{"as": "counted"})
        return "counted"

    def abort(self, match: Match, reason: str = "actor") -> None:
        """End a match without a result."""
        self._frozen_at_issue.pop(match.match)
        self._happened("ended", match=match.match, by=HERE, reason=reason, **{"as": "aborted"})

    def open_period(self, name: str) -> dict[str, Any]:
        """Begin the next learning period of a player; the hyperparameters to train with at its start."""
        number = self.state.progress[name].period + 1
        self._happened("period_opened", player=name, number=str(number), learner=HERE, deadline=NEVER)
        return self.hyperparameters(name)

    def hyperparameters(self, name: str, progress: float = 0.0) -> dict[str, Any]:
        """What a player trains with, `progress` in [0, 1] through its period."""
        player, number = self.state.players[name], self.state.progress[name].period
        return Hyperparameters(player.rules).at(player.hyperparameters, max(0, number - 1), progress)

    def progress(self, name: str, steps: int) -> None:
        """Tell how many environment steps a player has made in all."""
        self._happened("progressed", player=name, steps=str(steps), deadline=NEVER)

    def close_period(self, name: str, steps: int, version: int) -> Decision:
        """End a period: a snapshot first, then a reset or an exploit, as the player's kind decides."""
        me, progress = self.state.roster[name], self.state.progress[name]
        decision = kind_of(me.kind, me.config).period_end(self.state, me, steps - progress.snapshot_steps, self.rng)
        closed = {"player": name, "number": str(progress.period), "reason": decision.reason, "by": HERE}
        how = "reset" if decision.reset else "exploited" if decision.exploit is not None else "closed"
        closed |= {"as": how, "snapshot": str(int(decision.snapshot)), "source": decision.exploit or ""}
        self._happened("period_closed", **closed, steps=str(steps), model=str(ModelRef(name, version)))
        if decision.snapshot:
            self.snapshot(name, version)
        changed = {"player": name, "generation": str(me.generation + 1), "reason": decision.reason, "by": HERE}
        if decision.reset:
            self._happened("reset", **changed, start="")
        elif decision.exploit is not None:
            stronger = self.state.roster[decision.exploit]
            values = to_json(Hyperparameters(me.rules).exploited(stronger.hyperparameters, self.rng))
            start = str(stronger.model or "") or self.state.progress[stronger.name].start
            before = to_json(dict(me.hyperparameters))
            source = {"source": stronger.name, "start": start, "before": before, "hyperparameters": values}
            self._happened("exploited", **changed, **source)
        return decision

    def _add(
        self,
        name: str,
        kind: str,
        config: Mapping[str, Any],
        parent: str,
        model: str,
        frozen: bool,
        rules: Mapping[str, Any],
        hyperparameters: Mapping[str, Any],
        elo: float,
    ) -> Player:
        self._happened(
            "added",
            name=name,
            slot=str(len(self.state.players)),
            kind=kind,
            config=to_json(dict(config)),
            parent=parent,
            model=model,
            initial="",
            frozen=str(int(frozen)),
            rules=to_json(dict(rules)),
            hyperparameters=to_json(dict(hyperparameters)),
            elo=repr(float(elo)),
            by=HERE,
        )
        return self.state.players[name]

    def _happened(self, event: str, **fields: str) -> None:
        happened = {"event": event, **fields}
        self.state.apply(happened)
        if self._on_event is not None:
            self._on_event(happened)
