"""A league as its launcher sees it: players, learners, strength and end.

It ends when the evaluator finds the Nash mixture at the goal, when all steps are done, or when the time is up. Players
that are added while it runs get a learner as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from league.models.snapshots import Snapshots
from league.models.unsaved import Unsaved
from league.redis.texts import pairs
from league.state.records import progress_from
from tasks.events import EVALUATION, STATUS, Subscription, of_player
from tasks.topology import Topology
from warren.errors import BrokerError, WarrenError
from workers.config.schema import Config
from workers.evaluation.scores import read_scores
from workers.launch.kinds.added_learners import AddedLearners
from workers.launch.kinds.configured import ConfiguredMonitor
from workers.launch.kinds.learning_times import LearningClock, UpdateTimes
from workers.launch.kinds.training_spec import learner_name
from workers.launch.monitor import Context, Health
from workers.launch.watching.figures import Figures, Troubles, scores, statuses
from workers.runtime.league_paths import league_folder, league_of, store_of
from workers.ui.league_view import LEARNING, LeagueFigures, LeagueView, strength

LEAGUE_EVERY = 2.0  # s between polls of the league
LOOKS = 3  # evaluations in a row, each of which has to meet the goal


class LeagueMonitor(ConfiguredMonitor):
    """The monitor of a league; see monitor.Monitor."""

    def __init__(self, config: Config, view: LeagueView, context: Context) -> None:
        super().__init__(config, context)
        self.view, self.league = view, league_of(config)
        self.store, self.folder = store_of(self.session), league_folder(config)
        self.figures = LeagueFigures()
        self._score = self.figures.score = scores()
        self._updates: dict[str, UpdateTimes] = {}
        self._troubles = Troubles(context.say)
        self._subscriptions: list[Subscription] = []
        self._look_at = 0.0
        self._clock, self._goal = LearningClock(), Goal(self.league.goal)
        self._added = AddedLearners(config, context, self.store)

    @property
    def topology(self) -> Topology:
        players = dict.fromkeys([*self.session.topology.players, *self.figures.players])
        return replace(self.session.topology, players=tuple(players))

    def begin(self) -> None:
        super().begin()
        self._subscribe(EVALUATION, self._score.receive)
        for player in self.league.players:
            self._follow(player)

    def poll(self) -> str | None:
        if time.monotonic() >= self._look_at and not self.context.watch.redis_away:
            self._look_at = time.monotonic() + LEAGUE_EVERY
            self._look_at_league()
        for player, figures in self.figures.players.items():
            if isinstance(figures, Figures):
                self._updates[player].poll(figures)
                self._troubles.poll(learner_name(player), figures)
        told = {name: figures["steps"] for name, figures in self.figures.players.items() if "steps" in figures}
        self._clock.poll(told)
        return self._ended()

    def steps(self) -> Mapping[str, int]:
        return {player: self.figures.steps_of(player) for player in self.figures.players}

    def excused(self) -> Mapping[str, str]:
        return {player: state for player, state in self.figures.states.items() if state != LEARNING}

    def show(self, health: Health) -> None:
        waiting = self.context.watch.depths
        self.view.show_league(self.figures, waiting, health.processes, health.notes)

    def update_seconds(self) -> float:
        return max((times.longest for times in self._updates.values()), default=0.0)

    def announce(self, state: str) -> None:
        try:
            self.session.events.fire(STATUS, {"state": state})
        except BrokerError as error:
            self.context.say(f"warning: {error}")

    def stop(self) -> None:
        for subscription in self._subscriptions:
            subscription.stop()
        try:
            self._save_the_rest()
        except (redis.RedisError, OSError, WarrenError) as error:
            self.context.say(f"warning: {self.folder} lacks the end of the league: {error}")

    def _save_the_rest(self) -> None:
        """Save events that a killed league worker has not saved."""
        unsaved = Unsaved(self.folder)
        if unsaved.prefixes == [self.session.topology.key_prefix] and self.store.is_ready():
            Snapshots(self.folder, self.store, self.session.pool).save()
            unsaved.clear()

    def outcome(self, state: str, seconds: float) -> dict[str, Any]:
        return {"state": state, "steps": self.figures.steps, "seconds": self._clock.seconds}

    def _ended(self) -> str | None:
        if self._goal.reached(self.figures.score):
            return "solved"
        if self.config.seconds is not None and self._clock.seconds >= self.config.seconds:
            return "finished"
        return "finished" if self.figures.steps >= self.config.total_steps else None

    def _look_at_league(self) -> None:
        try:
            self.figures.counters = self.store.counters()
            roster = self.store.view().roster
            learners = {player.name: player for player in roster if player.name in self.figures.players}
            for name in learners:
                fields: Any = self.session.redis.hgetall(f"{self.store.prefix}player:{name}")
                self.figures.kept[name] = progress_from(pairs(fields)).steps
        except (redis.RedisError, OSError, KeyError, ValueError):
            return  # Redis is away; the watch reports it
        for slot in roster.learning:
            player = roster.by_slot[int(slot)]
            if player.name not in self.figures.players:
                self.context.say(f"player {player.name} was added; starting its learner")
                self._follow(player.name)
                self._added.start(player.name)
        self._added.look(roster.by_slot[int(slot)] for slot in roster.learning)
        self.figures.states = {name: self._state(name, roster) for name in self.figures.players}

    def _state(self, name: str, roster: Any) -> str:
        if name not in roster:
            return "not there yet"
        player = roster[name]
        for state in ("removed", "frozen", "paused"):
            if getattr(player, state, False):
                return state
        process = next((one for one in self.context.supervisor.children if one.name == learner_name(name)), None)
        if process is not None and (process.done or process.given_up):
            return "no learner"
        return LEARNING

    def _follow(self, player: str) -> None:
        figures = statuses()
        self.figures.players[player], self._updates[player] = figures, UpdateTimes()
        self._subscribe(of_player(STATUS, player), figures.receive)

    def _subscribe(self, event: str, handler: Callable[[Any], None]) -> None:
        session = self.session
        self._subscriptions.append(
            Subscription(session.app, session.topology, {event: handler}, subscriber="launcher").start()
        )


class Goal:
    """An exploitability that has to be reached LOOKS times in a row: one lucky, noisy evaluation must not end a run."""

    def __init__(self, goal: float | None) -> None:
        self._goal, self._look, self._held = goal, None, 0

    def reached(self, score: Mapping[str, Any]) -> bool:
        """Take in the newest score; return whether the last LOOKS evaluations met the goal."""
        if score.get("time") != self._look:
            self._look, mixture = score.get("time"), score.get("mixture")
            within = self._goal is not None and mixture is not None and mixture <= self._goal
            self._held = self._held + 1 if within else 0
        return self._held >= LOOKS


def report_end(folder: Path, outcome: Mapping[str, Any], status: int) -> int:
    """Print the outcome in a few lines, the last of a run; return the exit status."""
    found = read_scores(folder)
    for picture in sorted((folder / "pictures").glob("[!.]*.png")):
        print(f"picture {picture}")
    if found:
        print(f"{found[-1]['frozen']} frozen players, {found[-1]['games']:,} games between them")
        print(strength(found[-1]))
        print(
            f"play against it: python -m workers.play {folder}, or in a browser: python -m workers.dashboard {folder}"
        )
    if outcome.get("state") in ("solved", "finished"):
        print(f"{outcome['state']}: {outcome['steps']:,} steps of all players in {outcome['seconds']:.0f} s")
        return 0
    print(f"{outcome.get('state', 'killed')}; go on with: python -m workers.train resume={folder}", flush=True)
    return status or 1
